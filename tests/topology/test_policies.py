"""Policies: precedence, refusals, and persistence."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.topology.built import Built

from jumpmq.amqp.errors import NotAllowed, NotFound
from jumpmq.topology import (
    AddVirtualHost,
    ClearOperatorPolicy,
    ClearPolicy,
    DeleteVirtualHost,
    InvalidPolicy,
    SetOperatorPolicy,
    SetPolicy,
    Topology,
)


def set_policy(built: Built, name: str, definition: Any, pattern: str = "", **options: Any) -> None:
    built.topology.apply(SetPolicy("/", name, pattern, definition, **options))


def policy_of(built: Built, queue: str) -> str | None:
    policy = built.vhost.in_force.of(built.vhost.queues[queue]).policy
    return policy.name if policy is not None else None


def test_of_equal_priorities_the_first_name_is_in_force(built: Built) -> None:
    built.queue("q")
    for name in "bca":
        set_policy(built, name, {"max-length": 1})
    assert policy_of(built, "q") == "a"
    set_policy(built, "c", {"max-length": 1}, priority=0.5)
    assert policy_of(built, "q") == "c"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a1", "b", "é x"]),
        ("^b$", ["b"]),
        ("[[:digit:]]$", ["a1"]),
        ("[^[:alpha:]]", ["a1", "é x"]),
        ("é", ["é x"]),
        ("^$", []),
    ],
)
def test_patterns(built: Built, pattern: str, names: list[str]) -> None:
    for name in ("a1", "b", "é x"):
        built.queue(name)
    set_policy(built, "p", {"max-length": 1}, pattern)
    assert [name for name in built.vhost.queues if policy_of(built, name)] == names


def test_what_is_in_force_is_merged(built: Built) -> None:
    queue, exchange = built.queue("q"), built.exchange("x")
    set_policy(built, "p", {"max-length": 5, "expires": 7, "overflow": "drop-head"})
    built.topology.apply(SetOperatorPolicy("/", "o", "", {"max-length": 9, "expires": 3, "message-ttl": 1}))
    for one in (queue, exchange):
        in_force = built.vhost.in_force.of(one)
        assert in_force.policy is not None
        assert in_force.operator_policy is not None
        assert (in_force.policy.name, in_force.operator_policy.name) == ("p", "o")
        assert in_force.definition == {"max-length": 5, "expires": 3, "message-ttl": 1, "overflow": "drop-head"}
    assert (queue.limits.max_length, queue.limits.expires, queue.limits.message_ttl) == (5, 3, 1)
    built.topology.apply(ClearPolicy("/", "p"))
    assert built.vhost.in_force.of(queue).definition == {"max-length": 9, "expires": 3, "message-ttl": 1}
    built.topology.apply(ClearOperatorPolicy("/", "o"))
    assert built.vhost.in_force.of(queue).definition == {}
    assert queue.limits.max_length is None


@pytest.mark.parametrize(
    ("key", "policy", "operator_policy", "in_force"),
    [
        ("delivery-limit", -1, 5, 5),
        ("delivery-limit", 5, -1, 5),
        ("delivery-limit", 0, -1, 0),
        ("delivery-limit", -3, -1, -1),
        ("delivery-limit", 5, 3, 3),
        ("max-length", 0, 5, 0),
        ("expires", 5, 1, 1),
    ],
)
def test_the_stricter_limit_of_two_policies_is_in_force(
    built: Built, key: str, policy: int, operator_policy: int, in_force: int
) -> None:
    queue = built.queue("q", {"x-queue-type": "quorum"}, durable=True)
    set_policy(built, "p", {key: policy})
    built.topology.apply(SetOperatorPolicy("/", "o", "", {key: operator_policy}))
    assert built.vhost.in_force.of(queue).definition == {key: in_force}


def test_the_default_exchange_keeps_to_itself(built: Built) -> None:
    """A policy for all names with `shards-per-node` does not shard the default exchange."""
    set_policy(built, "p", {"alternate-exchange": "", "shards-per-node": 0})
    assert built.vhost.in_force.sharding(built.vhost.exchanges[""]) is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"definition": []}, "definition must be a dictionary: []"),
        ({"definition": "x"}, 'definition must be a dictionary: <<"x">>'),
        ({"definition": {"shards-per-node": 1.5}}, "shards-per-node should be a whole number, actually was 1.5"),
        (
            {"definition": {"shards-per-node": 1_000_000}},
            "shards-per-node should be at most 10000, actually was 1000000",
        ),
        (
            {"definition": {"shards-per-node": 1, "routing-key": "k" * 256}},
            "routing-key should be at most 255 octets long, actually was 256",
        ),
        (
            {"definition": {"shards-per-node": 1, "single-active-consumer": "x"}},
            'single-active-consumer should be true or false, actually was <<"x">>',
        ),
        ({"definition": {"single-active-consumer": True}}, "shards-per-node must be specified"),
        ({"definition": {"max-age": "x"}}, '<<"x">> is not a valid max age'),
        ({"definition": {"max-age": ""}}, "<<>> is not a valid max age"),
        ({"definition": {"message-ttl": 10**30}}, f"{10**30} is not a valid message TTL"),
        ({"definition": {"alternate-exchange": "\ud800"}}, "<<237,160,128>> is not text"),
        (
            {"definition": {"slots": 4}},
            "slots is no policy setting, as messages lie in their slots: declare the queue with x-slots",
        ),
        ({"priority": float("nan")}, "priority should be a number, actually was nan"),
        ({"priority": True}, "priority should be a number, actually was true"),
        (
            {"apply_to": 5},
            "apply-to '5' unrecognised; should be one of: 'queues', 'classic_queues',  "
            "'quorum_queues', 'streams', 'exchanges', or 'all'",
        ),
        ({"pattern": None}, "pattern should be a binary but was null"),
        (
            {"pattern": "a)", "priority": "high"},
            'pattern should be regular expression but is invalid: {"unexpected ): a)"}\n'
            'priority should be a number, actually was <<"high">>',
        ),
    ],
)
def test_what_is_refused_changes_nothing(built: Built, wrong: dict[str, Any], text: str) -> None:
    parts: dict[str, Any] = {"pattern": "", "definition": {"max-length": 1}, **wrong}
    with pytest.raises(InvalidPolicy) as refused:
        built.topology.apply(SetPolicy("/", "p", **parts))
    assert refused.value.text == text
    assert built.vhost.policies.all(operator=False) == []


def test_a_definition_without_end_is_refused(built: Built) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidPolicy, match=r"^definition is nested too deeply$"):
        set_policy(built, "p", {"x": nested})


def test_what_is_not_there_cannot_be_cleared(built: Built) -> None:
    with pytest.raises(NotFound, match=r"^no policy 'p'$"):
        built.topology.apply(ClearPolicy("/", "p"))
    with pytest.raises(NotFound, match=r"^no operator policy 'p'$"):
        built.topology.apply(ClearOperatorPolicy("/", "p"))
    with pytest.raises(NotAllowed, match=r"^vhost lost not found$"):
        built.topology.apply(SetPolicy("lost", "p", "", {"max-length": 1}))


def test_policies_end_with_their_virtual_host(built: Built) -> None:
    built.topology.apply(AddVirtualHost("other"))
    built.topology.apply(SetPolicy("other", "p", "", {"max-length": 1}))
    built.topology.apply(DeleteVirtualHost("other"))
    built.topology.apply(AddVirtualHost("other"))
    assert built.topology.vhost("other").policies.all(operator=False) == []


def test_queues_follow_their_policies_one_by_one() -> None:
    """Policies apply to very many queues in steps, with other work in between; deleted queues are skipped."""
    later: list[Iterator[None]] = []
    topology = Topology("jumpmq@test", later=lambda subject, steps: later.append(steps))
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    first, second, third = (built.queue(name) for name in "abc")
    set_policy(built, "p", {"max-length": 5})
    (steps,) = later
    next(steps)
    assert [queue.limits.max_length for queue in (first, second, third)] == [5, None, None]
    built.delete_queue("b")
    list(steps)
    assert [queue.limits.max_length for queue in (first, second, third)] == [5, None, 5]


def test_policies_that_change_together_are_followed_once() -> None:
    later: list[Iterator[None]] = []
    topology = Topology("jumpmq@test", later=lambda subject, steps: later.append(steps))
    topology.apply(AddVirtualHost("/"))
    built = Built(topology)
    for number in range(50):
        built.queue(f"q{number}")
    for number in range(20):
        topology.apply(SetPolicy("/", f"p{number}", "^q", {"max-length": number}, number, "queues"))
    next(later[-1])
    topology.apply(SetPolicy("/", "last", "^q4", {"max-length": 99}, 99, "queues"))
    assert sum(1 for steps in later for _ in steps) == 50
    assert {built.vhost.queues[f"q{number}"].limits.max_length for number in range(50)} == {19, 99}
