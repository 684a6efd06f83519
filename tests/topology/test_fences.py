"""Messages held back by ordering barriers, when the ring of an exchange with ordered-scaling changes."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.queues.consumers import Taker
from tests.store.opened import Opened
from tests.topology.built import Built

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, Queue, clock
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import Held
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.store.kinds import FENCE_MARK, FENCE_QUEUE, FENCE_RING
from jumpmq.topology import AddVirtualHost, DeleteQueue, SetPolicy, Topology, fences

KEYS = [f"key {number}" for number in range(40)]


class Scaled(Built):
    """An exchange ``x`` with ``ordered-scaling``, with queues served on request."""

    def __init__(self, opened: Opened | None = None, kind: str = "x-consistent-hash", **arguments: Any) -> None:
        self.woken: set[Queue] = set()
        store = None if opened is None else opened.store
        super().__init__(Topology("jumpmq@test", store, wake=lambda queue, at: self.woken.add(queue)))
        self.definitions = [] if store is None else store.definitions()
        self.topology.restore(self.definitions)
        if "/" not in self.topology.vhosts:
            self.topology.apply(AddVirtualHost("/"))
            self.exchange("x", kind, {"ordered-scaling": True, **arguments}, durable=True)

    def add(self, *names: str, weight: str = "1", **arguments: Any) -> None:
        for name in names:
            if name not in self.vhost.queues:
                self.queue(name, {key.replace("_", "-"): value for key, value in arguments.items()}, durable=True)
            self.bind("x", name, weight)

    def publish(self, *keys: str, expires: bool = False) -> None:
        """Publish one message per key, with consecutive numbers."""
        for key in keys:
            published = Message("x", key.encode(), b"\x10\x00\x02", key.encode(), True)
            for queue in self.route("x", published, plain=True).queues:
                if expires:
                    published.expires_at = clock.now() - 1
                    queue.expect_expiry()
                queue.push([published])

    def home(self, key: str) -> str:
        (name,) = self.reached("x", key)
        return name

    def contents(self, name: str) -> ClassicQueue:
        queue = self.vhost.queues[name]
        assert isinstance(queue, ClassicQueue)
        return queue

    def fenced(self, name: str) -> int:
        return self.contents(name).fenced_count

    def take(self, name: str, count: int = 1000) -> list[Message]:
        return self.contents(name).take(count)

    def settle(self, name: str, messages: list[Message], outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
        self.contents(name).settle(messages, outcome)
        self.look()

    def look(self) -> None:
        while self.woken:
            queue = self.woken.pop()
            if not queue.deleted:
                queue.maintain(clock.now())


def read(messages: list[Message]) -> list[str]:
    return [one.body.decode() for one in messages]


@pytest.fixture
def scaled() -> Scaled:
    """Queues a and b, with one message per key."""
    made = Scaled()
    made.add("a", "b")
    made.publish(*KEYS)
    return made


def test_a_new_queue_holds_what_has_moved_until_the_old_one_has_none_of_before(scaled: Scaled) -> None:
    homes = {key: scaled.home(key) for key in KEYS}
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    of = {name: [key for key in moved if homes[key] == name] for name in "ab"}
    assert of["a"] and of["b"]
    scaled.publish(*KEYS)
    assert (scaled.fenced("a"), scaled.fenced("b"), scaled.fenced("c")) == (0, 0, len(moved))
    assert scaled.take("c") == []
    old = scaled.take("a", scaled.contents("a").ready_count - 1)  # all earlier messages among them
    assert scaled.take("c") == [], "taken is not gone"
    scaled.settle("a", old[:-1])
    scaled.settle("a", old[-1:], Outcome.REQUEUED)
    scaled.settle("a", scaled.take("a"))
    assert read(scaled.take("c")) == of["a"], "the others wait for b"
    scaled.settle("b", scaled.take("b"), Outcome.REJECTED)
    assert read(scaled.take("c")) == of["b"]
    assert scaled.contents("c").fences is None


def test_nothing_waits_for_an_empty_queue(scaled: Scaled) -> None:
    scaled.settle("a", scaled.take("a"))
    scaled.add("c")
    scaled.publish(*KEYS)
    assert 0 < scaled.fenced("c") < scaled.contents("c").ready_count


def test_a_queue_keeps_its_own_keys_flowing_through_a_change(scaled: Scaled) -> None:
    own = [key for key in KEYS if scaled.home(key) == "a"]
    scaled.unbind("x", "b", "1")
    scaled.publish(*KEYS)
    assert scaled.fenced("a") == len(KEYS) - len(own)
    assert read(scaled.take("a")) == own + own


def test_a_queue_to_which_keys_came_by_a_third_waits_for_the_first(scaled: Scaled) -> None:
    """A queue with keys by way of c waits for a and b: only the first change knows their messages."""
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.add("d", weight="30")
    twice = [key for key in moved if scaled.home(key) == "d"]
    assert twice
    scaled.publish(*twice)
    assert scaled.fenced("d") == len(twice) and scaled.take("d") == []
    for name in "ab":
        scaled.settle(name, scaled.take(name))
    assert read(scaled.take("d")) == twice


def test_keys_that_come_back_wait_for_where_they_were_meanwhile(scaled: Scaled) -> None:
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    scaled.unbind("x", "c", "1")
    scaled.publish(*moved)
    assert scaled.fenced("a") + scaled.fenced("b") == len(moved)
    old = {name: scaled.take(name) for name in "ab"}
    assert not {*read(old["a"])} & {*read(old["b"])}
    for name in "ab":
        scaled.settle(name, old[name])
    assert scaled.fenced("a") + scaled.fenced("b") == len(moved)
    scaled.settle("c", scaled.take("c"))
    assert sorted(read(scaled.take("a") + scaled.take("b"))) == sorted(moved)


GONE: dict[str, Callable[[Scaled, str], object]] = {
    "purged": lambda scaled, name: scaled.contents(name).purge(),
    "deleted": lambda scaled, name: scaled.topology.apply(DeleteQueue("/", name, scaled.contents(name).id)),
    "dropped": lambda scaled, name: scaled.topology.apply(
        SetPolicy("/", "short", f"^{name}$", {"max-length": 0}, apply_to="queues")
    ),
    "got and lost": lambda scaled, name: scaled.contents(name).settle(
        scaled.contents(name).take_range(1, 1000, 1000), Outcome.ACKNOWLEDGED, Held.RESERVED
    ),
}


@pytest.mark.parametrize("how", GONE)
def test_what_leaves_the_old_queue_in_another_way_counts_as_gone(scaled: Scaled, how: str) -> None:
    held = scaled.take("a", 3)
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    for name in "ab":
        GONE[how](scaled, name)
        scaled.look()
    if how != "deleted":
        assert scaled.fenced("c"), "what is taken is still there"
        scaled.settle("a", held)
    assert (scaled.fenced("c"), read(scaled.take("c"))) == (0, moved)


def test_what_expires_in_the_old_queue_counts_as_gone() -> None:
    scaled = Scaled()
    scaled.add("a")
    scaled.publish("before")
    scaled.publish(*KEYS, expires=True)
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    scaled.settle("a", scaled.take("a"))
    assert read(scaled.take("c")) == moved


def test_what_waits_may_expire_be_purged_and_be_dropped(scaled: Scaled) -> None:
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved[:2], expires=True)
    scaled.publish(*moved[2:])
    scaled.look()
    assert scaled.fenced("c") == len(moved) - 2
    scaled.topology.apply(SetPolicy("/", "short", "^c$", {"max-length": 3}, apply_to="queues"))
    scaled.look()
    queue = scaled.contents("c")
    assert [one.body.decode() for one in queue.peek(1, queue.next_seq)] == moved[-3:]
    assert (queue.purge(), queue.ready_count) == (3, 0)
    scaled.look()
    scaled.publish(moved[0])
    assert scaled.fenced("c") == 1


def test_consumers_are_held_and_go_on_by_themselves(scaled: Scaled) -> None:
    takers = {name: Taker(scaled.contents(name), 10).start() for name in "ab"}
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    new = Taker(scaled.contents("c"), 1000).start()
    scaled.publish(*moved)
    while any(taker.held for taker in takers.values()):
        assert not new.held or not (takers["a"].held and takers["b"].held)
        for taker in takers.values():
            taker.ack(1)
        scaled.look()
    assert sorted(new.bodies) == sorted(key.encode() for key in moved)


def test_readers_reserve_only_what_waits_for_nothing(scaled: Scaled) -> None:
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    queue = scaled.contents("c")
    assert queue.take_range(1, 1000, 1000) == []
    assert not list(queue.view.browse_takeable(1, 1000))
    assert len(queue.peek(1, 1000)) == len(moved), "a look shows all"


def test_a_queue_with_slots_holds_and_then_slots(scaled: Scaled) -> None:
    scaled.add("c", x_slots=4)
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    scaled.publish(*moved)
    queue = scaled.contents("c")
    assert queue.slots is not None and not list(queue.slots.states.figures())
    for name in "ab":
        scaled.settle(name, scaled.take(name))
    found = read(scaled.take("c"))
    assert sorted(found) == sorted(moved * 2)
    assert len({one.slot for one in queue.slots.states.figures()}) > 1


@pytest.mark.parametrize("removal", ["minimal", "shift"])
def test_a_weight_that_changes_is_a_change_of_the_ring(removal: str) -> None:
    scaled = Scaled(None, "x-consistent-hash", **{"ring-removal": removal})
    scaled.add("a", "b")
    scaled.publish(*KEYS)
    homes = {key: scaled.home(key) for key in KEYS}
    scaled.bind("x", "b", "5")
    assert scaled.topology.fences.figures("/") is not None
    scaled.unbind("x", "b", "1")
    moved = [key for key in KEYS if scaled.home(key) != homes[key]]
    assert moved
    scaled.publish(*KEYS)
    assert scaled.fenced("a") + scaled.fenced("b") == len(moved)


def test_shards_that_a_policy_adds_wait() -> None:
    scaled = Scaled()
    scaled.topology.apply(SetPolicy("/", "shards", "^x$", {"shards-per-node": 2}))
    scaled.publish(*KEYS)
    homes = {key: scaled.home(key) for key in KEYS}
    scaled.topology.apply(SetPolicy("/", "shards", "^x$", {"shards-per-node": 4}))
    moved = [key for key in KEYS if scaled.home(key) != homes[key]]
    scaled.publish(*KEYS)
    assert moved
    assert sum(scaled.fenced(name) for name in scaled.vhost.queues) == len(moved)


def test_a_modulus_hash_exchange_holds_nearly_everything() -> None:
    scaled = Scaled(kind="x-modulus-hash")
    scaled.add("a", "b")
    scaled.publish(*KEYS)
    homes = {key: scaled.home(key) for key in KEYS}
    scaled.add("c")
    scaled.publish(*KEYS)
    moved = [key for key in KEYS if scaled.home(key) != homes[key]]
    assert sum(map(scaled.fenced, "abc")) == len(moved) > len(KEYS) / 2


def test_what_comes_by_another_way_does_not_wait(scaled: Scaled) -> None:
    scaled.add("c")
    key = next(key for key in KEYS if scaled.home(key) == "c")
    scaled.contents("c").push([Message("", key.encode(), b"\0\0", b"by name")])
    scaled.contents("c").push([Message("y", key.encode(), b"\0\0", b"by another exchange")])
    assert read(scaled.take("c")) == ["by name", "by another exchange"]
    scaled.exchange("y", "fanout")
    scaled.feed("y", "x")
    scaled.contents("c").push([Message("y", key.encode(), b"\0\0", b"by both")])
    assert scaled.take("c") == []


def test_without_the_argument_nothing_waits() -> None:
    scaled = Scaled(None, "x-consistent-hash", **{"ordered-scaling": False})
    scaled.add("a", "b")
    scaled.publish(*KEYS)
    scaled.add("c")
    scaled.publish(*KEYS)
    assert not list(scaled.topology.fences.figures("/")) and scaled.take("c")


def test_an_operator_lifts_a_fence(scaled: Scaled) -> None:
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*moved)
    queue = scaled.contents("c")
    shown = {one.source: one for _, one in scaled.topology.fences.figures("/")}
    assert {*shown} == {"a", "b"} and sum(one.held for one in shown.values()) == len(moved)
    assert (scaled.topology.fences.lift(queue, "z"), scaled.topology.fences.lift(queue, "a")) == (0, 1)
    scaled.look()
    assert scaled.fenced("c") == shown["b"].held
    assert [one.source for _, one in scaled.topology.fences.figures("/")] == ["b"]


def test_changes_beyond_a_limit_hold_nothing_more(scaled: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "MAX_OPEN", 2)
    for name in "cdef":
        scaled.add(name)
    scaled.publish(*KEYS)
    assert len({one.since for _, one in scaled.topology.fences.figures("/")}) == 2
    for name in "ab":
        scaled.settle(name, scaled.take(name))
    assert not list(scaled.topology.fences.figures("/"))
    assert not any(map(scaled.fenced, "cdef"))


@pytest.mark.parametrize(
    "problem",
    [
        lambda scaled: scaled.add("s", x_queue_type="stream"),
        lambda scaled: scaled.add("p", x_max_priority=3),
        lambda scaled: scaled.exchange("y", "fanout") and scaled.feed("x", "y", "1"),
        lambda scaled: scaled.exchange("z", "x-modulus-hash", {"ordered-scaling": "yes"}),
    ],
    ids=["stream", "priorities", "exchange", "no boolean"],
)
def test_what_cannot_hold_messages_back_is_refused(scaled: Scaled, problem: Callable[[Scaled], object]) -> None:
    with pytest.raises(PreconditionFailed, match="ordered-scaling"):
        problem(scaled)


# --- restarts ---


def restarted(opened: Opened) -> Scaled:
    """Return the state after a crash, with all committed changes."""
    scaled = Scaled(opened)
    records = records_of_queues(scaled.definitions, clean=False)
    batches = opened.store.batches()
    scaled.topology.fences.restore(scaled.definitions)
    for queue in scaled.vhost.queues.values():
        queue.restore(batches.get(queue.id, []), records.get(queue.id, QueueRecords()))
    scaled.topology.fences.count_restored()
    return scaled


def test_after_a_crash_the_same_waits(opened: Opened) -> None:
    scaled = Scaled(opened)
    scaled.add("a", "b")
    scaled.publish(*KEYS)
    old = {name: scaled.take(name, 5) for name in "ab"}
    scaled.add("c")
    moved = [key for key in KEYS if scaled.home(key) == "c"]
    scaled.publish(*KEYS)
    scaled.settle("a", old["a"])
    assert scaled.topology.fences.lift(scaled.contents("c"), "b")
    waits = [key for key in moved if key in read(scaled.contents("a").peek(1, 100)) or key in read(old["a"])]
    scaled.topology.flush_rings()
    opened.commit()
    again = restarted(opened.crash())
    assert again.fenced("c") == len(waits)
    assert [(one.source, one.held) for _, one in again.topology.fences.figures("/")] == [("a", len(waits))]
    for key in waits[:1]:
        again.publish(key)
    again.settle("a", again.take("a"))
    assert again.fenced("c") == 0
    assert read(again.take("c"))[-1] == waits[0]


def test_records_go_when_nothing_waits_any_more(opened: Opened) -> None:
    scaled = Scaled(opened)
    scaled.add("a", "b")
    scaled.publish(*KEYS)
    scaled.add("c")
    scaled.publish(*KEYS)
    scaled.topology.flush_rings()
    opened.commit()
    again = restarted(opened.crash())
    assert {kind for kind, _, _ in again.definitions} >= {FENCE_RING, FENCE_MARK, FENCE_QUEUE}
    for name in "ab":
        again.settle(name, again.take(name))
    assert len(again.take("c")) == again.contents("c").unacknowledged_count
