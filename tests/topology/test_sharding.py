"""Sharded exchanges beyond the conformance tests: restarts, limits, and extensions of RabbitMQ."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.queues.consumers import Taker
from tests.topology.built import Built, keys, message
from tests.topology.state import state_of

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues.classic import ClassicQueue
from jumpmq.store import Store
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Bind,
    Binding,
    ClearPolicy,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVirtualHost,
    ExchangeDefinition,
    InvalidPolicy,
    SetPolicy,
    Topology,
    proposals,
)
from jumpmq.topology.changes import preparing


def shard(built: Built, per_node: int, pattern: str = "^x$", **definition: Any) -> None:
    built.topology.apply(SetPolicy("/", "shards", pattern, {"shards-per-node": per_node, **definition}))


def names(built: Built) -> list[str]:
    return list(built.vhost.queues)


def bound(built: Built, exchange: str = "x") -> list[tuple[str, str]]:
    return [(one.destination, one.key.decode()) for one in built.vhost.exchange(exchange).bindings]


@contextmanager
def opened(directory: Path, node: str = "jumpmq@test") -> Iterator[Built]:
    """Open the topology kept in a directory; leaving the context is a clean stop."""
    store = Store.open(directory, on_commit=lambda number: None)
    try:
        topology = Topology(node, store)
        topology.restore(store.definitions())
        topology.apply(AddVirtualHost("/"))
        topology.apply(AddHome(1, node))
        yield Built(topology)
        topology.flush_rings()
    finally:
        store.close()


SHARDS = ["sharding: x - jumpmq@test - 0", "sharding: x - jumpmq@test - 1"]


# --- restarts ---


def test_after_a_restart_everything_is_as_before(tmp_path: Path) -> None:
    with opened(tmp_path) as built:
        built.exchange("x", "direct", durable=True)
        shard(built, 2, "^x$", **{"routing-key": "1234", "single-active-consumer": True})
    with opened(tmp_path) as built:
        assert bound(built) == [(name, "1234") for name in SHARDS]
        assert [built.vhost.queues[name].limits.single_active_consumer for name in names(built)] == [True, True]
        assert built.vhost.policies.get("shards", operator=False).definition["routing-key"] == "1234"
        built.topology.apply(ClearPolicy("/", "shards"))
    with opened(tmp_path) as built:
        assert (names(built), bound(built)) == (SHARDS, [])


def test_missing_shards_are_made_anew_at_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as built:
        built.exchange("x", "fanout", durable=True)
        shard(built, 2)
        built.delete_queue(SHARDS[0])
    for _ in range(2):
        with opened(tmp_path) as built:
            assert sorted(bound(built)) == [(name, "") for name in SHARDS]
            assert len({queue.id for queue in built.vhost.queues.values()}) == 2


def test_a_predeclared_exchange_is_sharded_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as built:
        shard(built, 1, "^amq.fanout$", **{"single-active-consumer": True})
    with opened(tmp_path) as built:
        (queue,) = built.vhost.queues.values()
        assert queue.limits.single_active_consumer
        assert bound(built, "amq.fanout") == [(queue.name, "")]


def test_a_new_node_gets_shards_of_its_own(tmp_path: Path) -> None:
    """Shards of a different name stay, and new messages are distributed over all shards.

    README of RabbitMQ's plugin: 'when a new node is added [...] the plugin will automatically create more
    shards on the new node'.
    """
    with opened(tmp_path) as built:
        built.exchange("x", "x-modulus-hash", durable=True)
        shard(built, 2)
    with opened(tmp_path, "jumpmq@new") as built:
        ours = [name.replace("test", "new") for name in SHARDS]
        assert [name for name, _ in bound(built)] == SHARDS + ours
        assert built.topology.sharding.local_shard(built.vhost, "x") == ours[0]
        routes = built.route("x", *[message(str(number)) for number in range(100)])
        assert {queue.name for queue in routes.queues} == {*SHARDS, *ours}


# --- limits ---


def test_shards_are_counted_at_their_home_as_other_queues_are(built: Built) -> None:
    counts, before = built.topology.holdings.queues_by_home, len(names(built))
    built.exchange("x", "x-modulus-hash", durable=True)
    shard(built, 3)
    assert counts.total() == len(names(built)) == before + 3
    for name in names(built)[before:]:
        built.topology.apply(DeleteQueue("/", name, built.vhost.declared[name].definition.id))
    assert counts.total() == before


@pytest.mark.slow
def test_a_million_shards_are_refused(built: Built) -> None:
    for number in range(101):
        built.exchange(f"x{number}")
    with pytest.raises(InvalidPolicy, match=r"^policy would make 10100 shards, at most 10000 may be made at once$"):
        shard(built, 100, "^x")
    assert names(built) == []
    shard(built, 99, "^x")
    assert len(names(built)) == 9999
    shard(built, 198, "^x")


def test_names_that_would_be_too_long(built: Built) -> None:
    long = "x" * 240
    problem = f"exchange '{long}' in vhost '/' cannot be sharded: its shards' names would be longer than 255 octets"
    shard(built, 1, "^x")
    with pytest.raises(PreconditionFailed) as refused:
        built.exchange(long)
    assert refused.value.text == problem
    assert long not in built.vhost.exchanges
    built.topology.apply(ClearPolicy("/", "shards"))
    built.exchange(long)
    with pytest.raises(InvalidPolicy) as invalid:
        shard(built, 1, "^x")
    assert invalid.value.text == problem


def test_a_key_that_the_exchange_cannot_take(built: Built) -> None:
    """RabbitMQ makes the queues and, without a word, no bindings."""
    problem = "exchange 'x' in vhost '/' cannot be sharded: The binding key must be an integer: <<\"heavy\">>"
    built.exchange("x", "x-consistent-hash")
    with pytest.raises(InvalidPolicy) as refused:
        shard(built, 2, **{"routing-key": "heavy"})
    assert refused.value.text == problem
    shard(built, 2)
    assert bound(built) == [(name, "1") for name in SHARDS]


def test_one_policy_makes_a_thousand_shards(built: Built) -> None:
    built.exchange("x", "x-modulus-hash", durable=True)
    shard(built, 1000)
    assert len(bound(built)) == 1000


class Slowly:
    """Takes the steps of long work when told."""

    def __init__(self) -> None:
        self.work: list[Iterator[None]] = []

    def __call__(self, subject: str, steps: Iterator[None]) -> None:
        self.work.append(steps)

    def steps(self) -> Iterator[None]:
        while self.work:
            yield from self.work.pop(0)


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Slowly:
    """Run unrelated work after every step of a change."""
    monkeypatch.setattr(proposals, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(preparing, "FEW", 0)
    return Slowly()


def test_of_very_many_shards_none_is_there_before_all_are() -> None:
    """A declaration of very many shards takes effect at once, after steps that do not hold up other clients."""
    later = Slowly()
    topology = Topology("jumpmq@test", later=later)
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    shard(built, 1000)
    pending = topology.propose(DeclareExchange(ExchangeDefinition("/", "x", "fanout")))
    seen = {(len(names(built)), "x" in built.vhost.exchanges) for _ in later.steps()}
    assert seen == {(0, False), (1000, True)}
    assert pending.decided
    assert len(bound(built)) == 1000


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "direct", "fanout", "topic", "headers"])
def test_an_exchange_routes_as_before_a_new_key_until_it_routes_as_after(slowly: Slowly, kind: str) -> None:
    topology = Topology("jumpmq@test", later=slowly)
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    built.exchange("x", kind)
    for name in ("first", "last"):
        built.queue(name)
    built.bind("x", "first", "1")
    shard(built, 4, **{"routing-key": "1"})
    built.bind("x", "last", "2")
    topology.apply(DeleteQueue("/", SHARDS[1], built.vhost.queue(SHARDS[1]).id))

    def routed() -> dict[str, list[str]]:
        return keys(built.route("x", *[message(str(number)) for number in range(50)]))

    before = routed()
    definition = {"shards-per-node": 6, "routing-key": "2"}
    pending = topology.propose(SetPolicy("/", "shards", "^x$", definition))
    seen = [routed() for _ in slowly.steps()]
    assert pending.decided
    revealed = seen.index(routed())
    assert revealed > 20
    assert seen == [before] * revealed + [routed()] * (len(seen) - revealed)
    assert bound(built)[:2] == [("first", "1"), ("last", "2")]
    assert bound(built)[2:] == [(f"sharding: x - jumpmq@test - {number}", "2") for number in range(6)]


@pytest.mark.parametrize("kind", ["x-consistent-hash", "fanout"])
@pytest.mark.parametrize("few", [0, 200])
def test_a_home_that_starts_again_is_seen_as_before_or_as_after(
    slowly: Slowly, monkeypatch: pytest.MonkeyPatch, kind: str, few: int
) -> None:
    """A restarted home loses its transient queues and shards and gets new shards in one step."""
    monkeypatch.setattr(preparing, "FEW", few)
    topology = Topology("one@host", later=slowly)
    for change in (AddHome(1, "one@host"), AddHome(2, "two@host"), AddVirtualHost("/")):
        topology.apply(change)
    built = Built(topology)
    for name in ("x", "other"):
        built.exchange(name, kind)
    built.exchange("passing", "fanout", auto_delete=True)
    for name, home in (("here", 1), ("there", 2)):
        topology.apply(DeclareQueue(topology.define_queue("/", name, home=home)))
        built.bind("x", name, "3")
        built.bind("other", name, "3")
        built.bind("x", name, "4")
    built.unbind("x", "there", "4")
    built.bind("passing", "there")
    topology.apply(Bind("/", Binding("other", "exchange", "passing", b"1")))
    shard(built, 2, "^x$")

    def seen() -> Any:
        state = state_of(topology)["vhosts"]["/"]
        return state, [one.id for one in built.vhost.declared.values()]

    topology.propose(AddHome(2, "two@host"))
    states = [seen() for _ in slowly.steps()]
    assert [state for state, after in pairwise(states) if state != after] == [states[0]]
    left = set(built.vhost.declared)
    assert left == {
        "here",
        *(f"sharding: x - {node} - {number}" for node in ("one@host", "two@host") for number in (0, 1)),
    }
    assert [one.destination for one in built.vhost.exchanges["other"].bindings] == ["here"]
    assert "passing" not in built.vhost.exchanges
    assert {one.destination for one in built.vhost.exchanges["x"].bindings} == left
    for declared in built.vhost.declared.values():
        assert len(built.vhost.bindings_to(declared.destination)) == (4 if declared.name == "here" else 2)


def test_what_is_asked_for_during_a_change_waits_for_it_in_order(slowly: Slowly) -> None:
    topology = Topology("jumpmq@test", later=slowly)
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    built.exchange("x", "fanout")
    told: list[str] = []
    asked = {
        "policy": SetPolicy("/", "shards", "^x$", {"shards-per-node": 3}),
        "exchange": DeleteExchange("/", "x"),
        "refused": Bind("/", Binding("x", "queue", SHARDS[0])),
    }
    for name, change in asked.items():
        topology.propose(change).then(lambda name=name: told.append(name))  # type: ignore[misc]
    assert told == []
    for _ in slowly.steps():
        pass
    assert told == ["policy", "exchange", "refused"]
    assert "x" not in built.vhost.exchanges
    assert len(names(built)) == 3


@pytest.mark.parametrize("kind", ["x-consistent-hash", "fanout"])
def test_a_kill_leaves_a_change_whole_or_undone(tmp_path: Path, slowly: Slowly, kind: str) -> None:
    """A kill between the steps of a change leaves the change whole or undone."""
    with opened(tmp_path / "kept") as built:
        built.exchange("x", kind, durable=True)
        shard(built, 3, **{"routing-key": "1"})
        before = state_of(built.topology)
    changes = [
        SetPolicy("/", "shards", "^x$", {"shards-per-node": 5, "routing-key": "2"}),
        ClearPolicy("/", "shards"),
        DeleteVirtualHost("/"),
    ]
    for change in changes:
        store = Store.open(tmp_path / "kept", on_commit=lambda number: None)
        topology = Topology("jumpmq@test", store, later=slowly)
        topology.restore(store.definitions())
        pending, left = topology.propose(change), []
        for number, _ in enumerate(slowly.steps()):
            if not pending.decided:
                topology.flush_rings()
                store.wait(store.flush())
                left.append(tmp_path / f"{type(change).__name__}{number}")
                shutil.copytree(tmp_path / "kept", left[-1])
        topology.flush_rings()
        store.close()
        with restarted(tmp_path / "kept") as topology:
            after = state_of(topology)
        assert after != before
        for directory in left:
            with restarted(directory) as topology:
                assert state_of(topology) in (before, after)
        assert len(left) >= 3
        before = after


@contextmanager
def restarted(directory: Path) -> Iterator[Topology]:
    """Return the definitions in a directory, and no others."""
    store = Store.open(directory, on_commit=lambda number: None)
    topology = Topology("jumpmq@test", store)
    topology.restore(store.definitions())
    yield topology
    store.close()


def test_an_exchange_that_goes_with_its_last_binding_survives_a_new_key(built: Built) -> None:
    """Unlike in RabbitMQ, which unbinds first, an auto-delete exchange survives a new key of its last binding."""
    built.exchange("x", auto_delete=True)
    shard(built, 2, **{"routing-key": "a"})
    shard(built, 2, **{"routing-key": "b"})
    assert bound(built) == [(name, "b") for name in SHARDS]


# --- one active consumer a shard ---


def test_shards_may_serve_one_consumer_at_a_time(built: Built) -> None:
    built.exchange("x", "fanout")
    shard(built, 1)
    (queue,) = built.vhost.queues.values()
    assert isinstance(queue, ClassicQueue)
    first, second = Taker(queue).start(), Taker(queue).start()
    queue.push([message(str(number)) for number in range(10)])
    assert second.held
    shard(built, 1, "^x$", **{"single-active-consumer": True})
    before = len(second.held)
    queue.push([message(str(number)) for number in range(10)])
    assert len(second.held) == before
    assert len(first.held) + before == 20


@pytest.mark.parametrize("end", [ClearPolicy("/", "shards"), DeleteExchange("/", "x")])
def test_without_the_policy_or_the_exchange_all_are_served(built: Built, end: Any) -> None:
    built.exchange("x", "fanout")
    shard(built, 1, "^x$", **{"single-active-consumer": True})
    (queue,) = built.vhost.queues.values()
    assert queue.limits.single_active_consumer
    built.topology.apply(end)
    assert not queue.limits.single_active_consumer
    if isinstance(end, DeleteExchange):
        built.exchange("x", "fanout")
        assert queue.limits.single_active_consumer


# --- kinds of queue ---


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("durable", [False, True])
def test_shards_may_be_of_any_kind(built: Built, kind: str, durable: bool) -> None:
    built.exchange("x", "x-modulus-hash", durable=durable)
    shard(built, 2, **{"queue-type": kind})
    assert [queue.type for queue in built.vhost.queues.values()] == [kind] * 2
    assert [queue.durable for queue in built.vhost.queues.values()] == [durable or kind != "classic"] * 2
    assert [name for name, _ in bound(built)] == SHARDS


def test_shards_that_are_there_stay_what_they_are(built: Built) -> None:
    built.exchange("x", "fanout")
    shard(built, 1)
    shard(built, 2, **{"queue-type": "stream"})
    assert [queue.type for queue in built.vhost.queues.values()] == ["classic", "stream"]


def test_a_kind_of_queue_that_there_is_not(built: Built) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        shard(built, 1, **{"queue-type": "odd"})
    assert refused.value.text == 'queue-type should be one of classic, quorum, stream, actually was <<"odd">>'


def test_streams_have_no_single_active_consumer(built: Built) -> None:
    with pytest.raises(InvalidPolicy, match="single-active-consumer is not possible with queue-type stream"):
        shard(built, 1, "^x$", **{"queue-type": "stream", "single-active-consumer": True})


@pytest.mark.parametrize(("policy", "expected"), [({}, "quorum"), ({"queue-type": "classic"}, "classic")])
def test_the_virtual_hosts_default_is_for_policies_that_name_no_kind(
    built: Built, policy: dict[str, Any], expected: str
) -> None:
    built.topology.apply(AddVirtualHost("/", "quorum"))
    built.exchange("x", "fanout", durable=True)
    shard(built, 1, **policy)
    assert [queue.type for queue in built.vhost.queues.values()] == [expected]


# --- looking at shards ---


def test_shards_at_a_glance(built: Built) -> None:
    built.exchange("x", "fanout")
    shard(built, 3)
    queues = list(built.vhost.queues.values())
    for queue, count in zip(queues, (1, 5, 0), strict=True):
        queue.push([message() for _ in range(count)])
    assert isinstance(queues[0], ClassicQueue)
    Taker(queues[0], prefetch=1).start()
    shard(built, 1)
    shards = built.topology.sharding.shards(built.vhost, "x")
    assert [(one.queue, one.number, one.messages, one.consumers) for one in shards] == [
        (queues[0], 0, 1, 1),
        (queues[1], 1, 5, 0),
        (queues[2], 2, 0, 0),
    ]
    assert [(round(one.share, 3), one.skew, one.is_stranded) for one in shards] == [
        (0.167, 0.5, False),
        (0.833, 2.5, True),
        (0.0, 0.0, False),
    ]


def test_an_empty_exchange_has_no_skew(built: Built) -> None:
    built.exchange("x")
    assert built.topology.sharding.shards(built.vhost, "x") == []
    shard(built, 2)
    assert [(one.share, one.skew) for one in built.topology.sharding.shards(built.vhost, "x")] == [(0.0, 0.0)] * 2
