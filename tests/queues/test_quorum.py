"""Delivery counts of quorum queues: kept and deleted with their messages, a million in steps."""

import pytest
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, clock
from jumpmq.queues.base import QueueContext
from jumpmq.queues.delivery_counts import FORGOTTEN
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.records import QueueRecords, records_of_queues

COUNT = 4 * FORGOTTEN


def restored(opened: Opened) -> QuorumQueue:
    """Return the queue restored from an opened store."""
    limit = {"x-delivery-limit": 50}
    queue = QuorumQueue("/", "q", id=7, durable=True, arguments=limit, context=QueueContext(journal=opened.store))
    records = records_of_queues(opened.store.definitions(), clean=False).get(7, QueueRecords())
    queue.restore(opened.store.batches().get(7, []), records)
    return queue


def counts(opened: Opened) -> dict[int, int]:
    """Return the delivery counts after a kill and a start, by message number."""
    opened.commit()
    return records_of_queues(opened.crash().store.definitions(), clean=False).get(7, QueueRecords()).attempts


@pytest.fixture
def returned(opened: Opened) -> QuorumQueue:
    """A queue whose messages were all returned once."""
    queue = restored(opened)
    queue.push([Message("", b"q", b"\0\0", b"%d" % number, True, 1_700_000_000.0) for number in range(COUNT)])
    queue.settle(queue.take(COUNT), Outcome.CONSUMER_GONE)
    assert len(counts(opened)) == COUNT
    return queue


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_purge_forgets_the_counts_of_what_was_ready_in_steps(
    opened: Opened, returned: QuorumQueue, is_restarted: bool
) -> None:
    queue = returned
    if is_restarted:
        opened = opened.crash()
        queue = restored(opened)
    held = queue.take(10)
    before = len(counts(opened))
    assert queue.purge() == COUNT - 10
    steps = 0
    while queue.purging:
        now = len(counts(opened))
        assert before - now <= FORGOTTEN
        queue.trim(clock.now())
        before, steps = now, steps + 1
    assert steps > 2
    assert counts(opened) == {message.seq: 2 for message in held}, "what was delivered was not purged"
    queue.settle(held, Outcome.CONSUMER_GONE)
    opened.commit()
    assert [message.attempts for message in restored(opened.crash()).take(COUNT)] == [3] * 10


def test_a_deleted_queue_leaves_no_counts(opened: Opened, returned: QuorumQueue) -> None:
    returned.delete()
    assert returned.purging
    while returned.purging:
        returned.trim(clock.now())
    assert not counts(opened)
