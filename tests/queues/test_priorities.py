"""The order of priorities while messages are paged, returned, reserved, and after a restart."""

import pytest
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome
from jumpmq.queues import ready as ready_messages
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.reservations import Reservations, exhaust

COUNT = 400


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few messages are many."""
    monkeypatch.setattr(ready_messages, "PAGED_AT_ONCE", 5)


def make_queue(opened: Opened) -> ClassicQueue:
    account = MemoryAccount(8 * OVERHEAD)
    arguments = {"x-max-priority": 9}
    context = QueueContext(journal=opened.store, memory=account)
    queue = ClassicQueue("/", "q", id=7, durable=True, arguments=arguments, context=context)
    queue.restore(opened.store.batches().get(7, []), 1, None)
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
    assert [int(one.body) for one in rows] == in_order(range(40))[:10]
    exhaust(reader.lapse())
    exhaust(reader.reinstate())
    assert [int(one.body) for one in reader.held(None, 1)[0]] == in_order(range(40))[:10]
    exhaust(reader.acknowledge(1))
    assert [int(one.body) for one in queue.take(100)] == in_order(range(40))[10:]
