"""The order of priorities while messages are paged, returned, reserved, and after a restart."""

from collections.abc import Callable, Iterable
from itertools import chain

import pytest
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome
from jumpmq.queues import ready as ready_messages
from jumpmq.queues import tail as tail_of_ready
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.queues.reservations import Reservations, exhaust

COUNT = 400


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten steps, so that few messages take many steps."""
    monkeypatch.setattr(ready_messages, "PAGED_AT_ONCE", 5)
    monkeypatch.setattr(tail_of_ready, "PAGED_AT_ONCE", 5)


def make_queue(opened: Opened) -> ClassicQueue:
    account = MemoryAccount(8 * OVERHEAD)
    arguments = {"x-max-priority": 9}
    context = QueueContext(journal=opened.store, memory=account)
    queue = ClassicQueue("/", "q", id=7, durable=True, arguments=arguments, context=context)
    queue.restore(opened.store.batches().get(7, []), QueueRecords())
    return queue


def messages(first: int, last: int) -> list[Message]:
    return [
        Message("", b"q", b"\x18\x00\x02" + bytes((number % 10,)), b"%d" % number, True, 1.0)
        for number in range(first, last)
    ]


def in_order(numbers: range) -> list[int]:
    return sorted(numbers, key=lambda number: (-(number % 10), number))


def test_paged_returned_and_restarted(opened: Opened) -> None:
    queue = make_queue(opened)
    for first in range(0, COUNT, 40):
        queue.push(messages(first, first + 40))
        opened.commit()
        while queue.page_out(0):
            pass
    assert queue.memory < COUNT * OVERHEAD
    taken = queue.take(100)
    assert [int(one.body) for one in taken] == in_order(range(COUNT))[:100]
    queue.settle(taken[:50], Outcome.ACKNOWLEDGED)
    queue.settle(taken[50:], Outcome.REQUEUED)
    assert [int(one.body) for one in queue.peek(0, 1 << 60)] == in_order(range(COUNT))[50:]
    queue.checkpoint()
    again = make_queue(opened.restart())
    again.push(messages(COUNT, COUNT + 10))
    assert [int(one.body) for one in again.take(1000)] == sorted(
        [*in_order(range(COUNT))[50:], *range(COUNT, COUNT + 10)], key=lambda number: (-(number % 10), number)
    )


def test_reservations_take_the_higher_first_and_read_the_same_again(opened: Opened) -> None:
    queue = make_queue(opened)
    queue.push(messages(0, 40))
    reader = Reservations(queue, "group")
    exhaust(reader.reserve(10))
    (rows,) = reader.held(None, 1)
    assert isinstance(rows, list)
    assert [int(one.body) for one in rows] == in_order(range(40))[:10]
    exhaust(reader.lapse())
    exhaust(reader.reinstate())
    (rows,) = reader.held(None, 1)
    assert isinstance(rows, list)
    assert [int(one.body) for one in rows] == in_order(range(40))[:10]
    exhaust(reader.acknowledge(1))
    assert [int(one.body) for one in queue.take(100)] == in_order(range(40))[10:]


def quorum_queue(opened: Opened) -> QuorumQueue:
    context = QueueContext(journal=opened.store, memory=MemoryAccount(8 * OVERHEAD))
    queue = QuorumQueue("/", "q", id=7, durable=True, context=context)
    records = records_of_queues(opened.store.definitions(), clean=False).get(7, QueueRecords())
    queue.restore(opened.store.batches().get(7, []), records)
    return queue


def two_to_one(numbers: list[int], turn: int = 0) -> list[int]:
    """Return the delivery order of a quorum queue."""
    high, normal = [one for one in numbers if one % 10 > 4], [one for one in numbers if one % 10 <= 4]
    taken = []
    while high or normal:
        older = high and normal and turn == 2 and normal[0] < high[0]
        taken.append((high if high and not older else normal).pop(0))
        turn = (turn + 1) % 3
    return taken


@pytest.mark.slow
def test_a_quorum_queue_that_is_paged_and_restarted(opened: Opened) -> None:
    queue = quorum_queue(opened)
    queue.push(messages(0, 3))  # only normal priorities
    for first in range(3, COUNT, 37):
        queue.push(messages(first, min(first + 37, COUNT)))
        opened.commit()
        while queue.page_out(0):
            pass
    assert queue.memory < COUNT * OVERHEAD
    expected = two_to_one(list(range(COUNT)))
    taken = queue.take(50)

    def is_taken() -> bool:
        taken.extend(queue.take_for_delivery(7))  # a thread reads messages on disk
        return len(taken) >= 100

    opened.work_until(is_taken)
    assert [int(one.body) for one in taken] == expected[: len(taken)]
    queue.settle(taken[:50], Outcome.ACKNOWLEDGED)
    queue.settle(taken[50:60], Outcome.CONSUMER_GONE)
    assert [int(one.body) for one in queue.take(10)] == sorted(expected[50:60])
    opened.commit()
    again = quorum_queue(opened.restart())
    rest = sorted(expected[50:])
    assert [int(one.body) for one in again.take(1000)] == two_to_one(rest)


def test_a_quorum_queue_reads_nothing_at_a_start_once_higher_priorities_are_gone(opened: Opened) -> None:
    queue = quorum_queue(opened)
    queue.push(messages(0, 10))
    queue.settle([one for one in queue.take(10) if int(one.body) > 4], Outcome.ACKNOWLEDGED)
    opened.commit()
    for _ in range(2):  # the first start reads the messages, and records that later starts need not
        opened = opened.restart()
        again = quorum_queue(opened)
        assert [int(one.body) for one in again.take(5)] == [0, 1, 2, 3, 4]
        opened.commit()
    assert isinstance(again.ready, ReadyMessages)
    again.push(messages(5, 7))
    assert [int(one.body) for one in quorum_queue(opened.restart()).take(7)] == [5, 6, 0, 1, 2, 3, 4]


def bodies(found: Iterable[Message]) -> list[int]:
    return [int(one.body) for one in found]


def held(reader: Reservations) -> list[int]:
    """Return the reserved messages by number from 0; while memory is tight, they are on disk."""
    pieces = [one if isinstance(one, list) else one.messages() for one in reader.held(None, 1)]
    return [one.seq - 1 for one in chain.from_iterable(pieces)]


@pytest.mark.parametrize("make", [make_queue, quorum_queue])
def test_the_range_is_that_of_all_and_a_look_has_the_order_of_delivery(
    opened: Opened, make: Callable[[Opened], ClassicQueue]
) -> None:
    queue = make(opened)
    queue.push(messages(0, COUNT))
    queue.settle(queue.take(5), Outcome.ACKNOWLEDGED)
    queue.settle(queue.take(7)[2:4], Outcome.CONSUMER_GONE)
    assert queue.view.by_priority
    looked_at = bodies(queue.peek(1, COUNT))
    assert queue.view.ready_range() == (min(looked_at) + 1, COUNT)
    assert queue.view.lowest_takeable(COUNT) == min(looked_at) + 1
    assert len(looked_at) == queue.ready_count == COUNT - 10
    assert sorted(bodies(queue.peek(50, 60))) == sorted(one for one in looked_at if 49 <= one <= 59)
    assert bodies(queue.take(1000)) == looked_at


@pytest.mark.parametrize("make", [make_queue, quorum_queue])
@pytest.mark.parametrize("upto", [COUNT, 30, 3])
def test_a_reservation_has_all_up_to_a_number_in_the_order_of_delivery(
    opened: Opened, make: Callable[[Opened], ClassicQueue], upto: int
) -> None:
    queue = make(opened)
    queue.push(messages(0, COUNT))
    reader = Reservations(queue, "group")
    assert reader.available(upto) >= upto
    expected = bodies(queue.peek(1, upto))
    exhaust(reader.reserve(COUNT, upto))
    assert held(reader) == expected
    assert sorted(expected) == list(range(upto))
    opened.commit()
    opened = opened.restart()
    again = Reservations.restore(make(opened), reader.record())
    assert held(again) == expected
    exhaust(again.lapse())
    exhaust(again.reinstate())
    assert held(again) == expected
