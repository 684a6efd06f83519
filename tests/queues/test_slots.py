"""Slots: order per key in one queue, service in turn, and the limit of unacknowledged messages."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from tests.queues.consumers import Taker
from tests.store.opened import Opened

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import _reference, xxh64
from jumpmq.queues import Outcome, clock
from jumpmq.queues import ready as ready_messages
from jumpmq.queues import tail as tail_of_ready
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.reservations import Reservations, exhaust
from jumpmq.queues.slots import SEED, Share, slot_of

VECTORS = Path(__file__).parents[1] / "data" / "slots.jsonl"


def queue_of(**arguments: object) -> ClassicQueue:
    return ClassicQueue("/", "q", id=7, arguments={name.replace("_", "-"): value for name, value in arguments.items()})


def message(key: bytes, body: object, **properties: object) -> Message:
    octets = Properties(**properties).encode() if properties else b"\x10\x00\x02"  # type: ignore[arg-type]
    return Message("", key, octets, str(body).encode(), True, 1_700_000_000.0)


def bodies(messages: list[Message]) -> list[str]:
    return [one.body.decode() for one in messages]


def by_key(messages: list[Message]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for one in messages:
        found[one.routing_key].append(int(one.body))
    return dict(found)


KEYS = {slot_of(b"%d" % number, 4): b"%d" % number for number in range(100)}
"""Keys of four slots."""
A, B, C, D = KEYS.values()


@pytest.mark.parametrize("line", VECTORS.read_text().splitlines())
def test_hash_is_as_written_down(line: str) -> None:
    vector = json.loads(line)
    key = bytes.fromhex(vector["key"])
    assert xxh64(key, SEED) == _reference.xxh64(key, SEED) == int(vector["xxh64"])
    assert {count: slot_of(key, int(count)) for count in vector["slots"]} == vector["slots"]


def test_slots_take_turns() -> None:
    queue = queue_of(x_slots=4)
    queue.push([message(A, f"a{number}") for number in range(5)])
    queue.push([message(B, "b0"), message(C, "c0"), message(B, "b1")])
    assert bodies([queue.take(1)[0] for _ in range(8)]) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"]


def test_limit_in_flight_blocks_its_slot_alone() -> None:
    queue = queue_of(x_slots=4, x_in_flight_per_slot=1)
    queue.push([message(A, f"a{number}") for number in range(3)])
    queue.push([message(B, f"b{number}") for number in range(2)])
    taken = queue.take(10)
    assert bodies(taken) == ["a0", "b0"]
    assert not queue.take(10)
    queue.settle(taken[1:], Outcome.ACKNOWLEDGED)
    assert bodies(queue.take(10)) == ["b1"]
    queue.settle(taken[:1], Outcome.REQUEUED)
    assert bodies(queue.take(10)) == ["a0"]


def test_acknowledging_lets_the_slot_go_on() -> None:
    queue = queue_of(x_slots=4, x_in_flight_per_slot=1)
    first, second = Taker(queue, 10).start(), Taker(queue, 10).start()
    queue.push([message(A, f"a{number}") for number in range(3)])
    assert [first.bodies, second.bodies] == [[b"a0"], []]
    queue.settle([first.held.pop()], Outcome.ACKNOWLEDGED)
    assert sorted(first.bodies + second.bodies) == [b"a1"]


def test_consumer_that_does_not_acknowledge_is_served_to_the_end() -> None:
    queue = queue_of(x_slots=4, x_in_flight_per_slot=1)
    taker = Taker(queue, no_ack=True).start()
    queue.push([message(A, number) for number in range(2500)])
    assert by_key(taker.held) == {A: list(range(2500))}


@pytest.mark.parametrize("kind", [ClassicQueue, QuorumQueue])
def test_order_of_a_key_survives_requeue(kind: type[ClassicQueue]) -> None:
    queue = kind("/", "q", id=7, durable=True, arguments={"x-slots": 4, "x-in-flight-per-slot": 1})
    queue.push([message(A, number) for number in range(4)])
    taken = queue.take(1)
    queue.settle(taken, Outcome.REQUEUED)
    assert bodies(queue.take(4)) == ["0"]


def test_rejected_and_expired_let_the_next_through(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(x_slots=4, x_in_flight_per_slot=1)
    now = clock.now()
    queue.push([message(A, number) for number in range(4)])
    queue.settle(queue.take(1), Outcome.REJECTED)
    taken = queue.take(1)
    assert bodies(taken) == ["1"]
    queue.settle(taken, Outcome.ACKNOWLEDGED)
    queue.expect_expiry()
    short = [message(B, "short"), message(B, "long")]
    short[0].expires_at = now + 5
    queue.push(short)
    monkeypatch.setattr(clock, "now", lambda: now + 10)
    assert bodies(queue.take(9)) == ["2", "long"]


def test_oldest_of_the_queue_are_dropped() -> None:
    queue = queue_of(x_slots=4, x_max_length=3)
    for number, key in enumerate([B, A, A, B, A, C]):
        queue.push([message(key, number)])
    assert sorted(bodies(queue.peek(0, 99))) == ["3", "4", "5"]


def test_message_without_its_header_is_in_the_slot_of_the_empty_key() -> None:
    queue = queue_of(x_slots=64, x_slot_key="header:tenant")
    headers = [None, [Field("other", "S", b"x")], [Field("tenant", "S", b"a")], [Field("tenant", "I", 17)]]
    queue.push([message(b"k", place, headers=one) for place, one in enumerate(headers)])
    slots = {one.body: one.slot for one in queue.take(9)}
    assert slots == {b"0": slot_of(b"", 64), b"1": slot_of(b"", 64), b"2": slot_of(b"a", 64), b"3": slot_of(b"17", 64)}


@pytest.mark.parametrize("name", ["message-id", "correlation-id"])
def test_slot_by_property(name: str) -> None:
    queue = queue_of(x_slots=64, x_slot_key=name)
    queue.push([message(b"k", 0, **{name.replace("-", "_"): "abc"}), message(b"k", 1)])
    assert [one.slot for one in queue.peek(0, 9)] == [slot_of(b"abc", 64), slot_of(b"", 64)]


def test_slots_that_are_given_away_are_taken_with_their_share() -> None:
    queue = queue_of(x_slots=4)
    mine = Share()
    assert queue.slots is not None
    queue.push([message(A, "a0"), message(B, "b0"), message(A, "a1")])
    queue.slots.give(queue.slots.slot_of(A), mine)
    assert bodies(queue.take(9)) == ["b0"]
    queue.slots.give(queue.slots.slot_of(B), None)
    queue.push([message(B, "b1"), message(C, "c0"), message(A, "a2")])
    assert bodies(queue.take(9)) == ["c0"]
    assert bodies(queue.take_from(mine, 9)) == ["a0", "a1", "a2"]
    queue.slots.give(queue.slots.slot_of(B), queue.slots.share)
    assert bodies(queue.take(9)) == ["b1"]


def stored_queue(opened: Opened, kind: type[ClassicQueue] = ClassicQueue) -> ClassicQueue:
    account = MemoryAccount(8 * OVERHEAD)
    arguments = {"x-slots": 16, "x-in-flight-per-slot": 1000}
    context = QueueContext(journal=opened.store, memory=account)
    queue = kind("/", "q", id=7, durable=True, arguments=arguments, context=context)
    queue.restore(opened.store.batches().get(7, []), QueueRecords())
    return queue


@pytest.mark.parametrize("kind", [ClassicQueue, QuorumQueue])
def test_paged_returned_reserved_and_restarted(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, kind: type[ClassicQueue]
) -> None:
    monkeypatch.setattr(ready_messages, "PAGED_AT_ONCE", 5)
    monkeypatch.setattr(tail_of_ready, "PAGED_AT_ONCE", 5)
    queue = stored_queue(opened, kind)
    for first in range(0, 400, 40):
        queue.push([message(b"k%d" % (number % 30), number) for number in range(first, first + 40)])
        opened.commit()
        while queue.page_out(0):
            pass
    assert queue.memory < 400 * OVERHEAD
    taken = queue.take(1000)
    for key, numbers in by_key(taken).items():
        assert numbers == list(range(int(key[1:]), 400, 30))
    queue.settle(taken[:50], Outcome.ACKNOWLEDGED)
    queue.settle(taken[50:], Outcome.REQUEUED)
    left = sorted(int(one.body) for one in taken[50:])
    assert [int(one.body) for one in queue.peek(0, 1 << 60)] == left
    reservations = Reservations(queue, "spark")
    exhaust(reservations.reserve(100))
    [held] = reservations.held(None, 1)
    shown = queue.taken.readable(held if isinstance(held, list) else held.messages())
    assert [int(one.body) for one in shown] == left[:100]
    exhaust(reservations.lapse())
    assert queue.slots is not None
    assert not any(one.unacknowledged for one in queue.slots.states.figures())
    queue.checkpoint()
    again = stored_queue(opened.restart(), kind)
    assert [int(one.body) for one in again.peek(0, 1 << 60)] == left
    for numbers in by_key(again.take(1000)).values():
        assert numbers == sorted(numbers)
