"""A queue larger than its memory keeps every message once and in order, also after a restart."""

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FrameType

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.generating import examples
from tests.in_memory import directory_in_memory
from tests.queues.consumers import Taker, message
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, clock, head
from jumpmq.queues import ready as ready_messages
from jumpmq.queues import tail as tail_of_ready
from jumpmq.queues.arguments import Limits
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import SEQUENCE_BLOCK, ClassicQueue
from jumpmq.queues.clock import NEVER
from jumpmq.queues.memory import OVERHEAD, PAGING_SHARE, MemoryAccount
from jumpmq.queues.records import QueueRecords, records_of_queues
from jumpmq.queues.segment import BatchSegment
from jumpmq.store import batch

BUDGET = 8 * OVERHEAD


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten steps, so that few messages take many steps."""
    monkeypatch.setattr(ready_messages, "PAGED_AT_ONCE", 5)
    monkeypatch.setattr(tail_of_ready, "PAGED_AT_ONCE", 5)
    monkeypatch.setattr(ready_messages, "RUN", 3)
    monkeypatch.setattr(head, "RUN", 3)


def make_queue(opened: Opened, budget: int = BUDGET) -> ClassicQueue:
    """Return a durable queue, restored from a store as at a broker's start."""
    account = MemoryAccount(int(budget / PAGING_SHARE))
    queue = ClassicQueue("/", "q", id=7, durable=True, context=QueueContext(journal=opened.store, memory=account))
    clean = opened.store.clean
    records = records_of_queues(opened.store.definitions(), clean=clean).get(7, QueueRecords(clean))
    queue.restore(opened.store.batches().get(7, []), records)
    opened.store.put("run", "started_at", 0)
    opened.store.flush()
    return queue


def stop(opened: Opened, queue: ClassicQueue) -> ClassicQueue:
    """A clean stop and a start."""
    queue.checkpoint()
    return make_queue(opened.restart())


def seen(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(one.seq, one.body) for one in messages]


class PagedQueue(RuleBasedStateMachine):
    """A queue with next to no memory, compared with a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = directory_in_memory()
        self.opened = Opened(Path(self.directory.name) / "broker")
        self.queue = make_queue(self.opened)
        self.ready: dict[int, tuple[bytes, bool]] = {}
        self.held: dict[int, Message] = {}
        self.delivered: set[int] = set()
        self.crashed = False

    def teardown(self) -> None:
        self.whole()
        self.opened.close()
        self.directory.cleanup()

    def take_from_model(self, seqs: list[int]) -> list[tuple[int, bytes]]:
        return [(seq, self.ready.pop(seq)[0]) for seq in seqs]

    def hold(self, messages: list[Message]) -> None:
        for one in messages:
            assert one.redelivered or one.seq not in self.delivered
            assert one.queue is self.queue
            self.held[one.seq] = one
            self.delivered.add(one.seq)

    @rule(sizes=st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=12))
    def push(self, sizes: list[tuple[int, bool]]) -> None:
        first = self.queue.next_seq
        messages = [message(b"%d" % (first + i) + bytes(size), persistent=kept) for i, (size, kept) in enumerate(sizes)]
        self.queue.push(messages)
        for seq, one in enumerate(messages, first):
            self.ready[seq] = (one.body, one.persistent)

    @rule(count=st.integers(1, 20))
    def take(self, count: int) -> None:
        expected = self.take_from_model(sorted(self.ready)[:count])
        taken = self.queue.take(count)
        assert seen(taken) == expected
        self.hold(taken)

    @rule(count=st.integers(1, 20))
    def deliver(self, count: int) -> None:
        """Deliver to consumers: some messages are read first, and a thread reads ahead meanwhile."""
        wanted = min(count, len(self.ready))
        taken: list[Message] = []

        def delivered() -> bool:
            taken.extend(self.queue.take_for_delivery(wanted - len(taken)))
            return len(taken) == wanted

        if wanted:
            self.opened.work_until(delivered)
        assert seen(taken) == self.take_from_model(sorted(self.ready)[:wanted])
        self.hold(taken)

    @rule(first=st.integers(1, 60), length=st.integers(0, 30), count=st.integers(1, 10))
    def take_range(self, first: int, length: int, count: int) -> None:
        within = [seq for seq in sorted(self.ready) if first <= seq <= first + length][:count]
        expected = self.take_from_model(within)
        taken = self.queue.take_range(first, first + length, count)
        assert seen(taken) == expected
        self.hold(taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), requeue=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool) -> None:
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
        messages = [self.held.pop(seq) for seq in seqs]
        if requeue:
            self.ready |= {one.seq: (one.body, one.persistent) for one in messages}
            self.queue.settle(messages, Outcome.REQUEUED)
        else:
            self.queue.settle(messages, Outcome.ACKNOWLEDGED)

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()

    @rule(first=st.integers(1, 60), length=st.integers(0, 30), limit=st.integers(1, 10))
    def peek(self, first: int, length: int, limit: int) -> None:
        expected = [(seq, self.ready[seq][0]) for seq in sorted(self.ready) if first <= seq <= first + length]
        assert seen(self.queue.peek(first, first + length, limit)) == expected[:limit]

    @rule()
    def whole(self) -> None:
        found = self.queue.peek(0, 1 << 60)
        assert seen(found) == [(seq, self.ready[seq][0]) for seq in sorted(self.ready)]

    @rule()
    def commit(self) -> None:
        self.opened.commit()

    @rule()
    def page_out(self) -> None:
        self.queue.page_out(3 * OVERHEAD)

    @rule()
    def maintain(self) -> None:
        self.queue.trim(0.0)

    @rule()
    def restart(self) -> None:
        self.give_back()
        self.queue = stop(self.opened, self.queue)
        self.forget_transient()

    @rule()
    def crash(self) -> None:
        self.give_back()
        self.opened.commit()
        crashed = self.opened.crash()
        self.opened.store.close()
        self.opened = crashed
        self.queue = make_queue(self.opened)
        self.forget_transient()
        self.delivered |= set(self.ready)

    def give_back(self) -> None:
        """Return all held messages, as a broker's stop does with closing channels, or a crash."""
        self.ready |= {seq: (one.body, one.persistent) for seq, one in self.held.items()}
        self.queue.settle(list(self.held.values()), Outcome.REQUEUED)
        self.held.clear()

    def forget_transient(self) -> None:
        self.ready = {seq: kept for seq, kept in self.ready.items() if kept[1]}

    @invariant()
    def counts(self) -> None:
        assert self.queue.ready_count == len(self.ready)
        assert self.queue.unacknowledged_count == len(self.held)
        assert self.queue.memory >= 0
        if not self.ready and not self.held:
            assert self.queue.memory == 0
        assert self.queue._account.total == self.queue.memory


TestPagedQueue = PagedQueue.TestCase
TestPagedQueue.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)


def kept(count: int, size: int) -> list[Message]:
    return [message(bytes(size), persistent=True) for _ in range(count)]


def test_memory_is_bounded_while_the_queue_grows_and_while_it_drains(opened: Opened) -> None:
    queue = make_queue(opened, budget=100_000)
    highest = 0
    for _ in range(100):
        queue.push(kept(5, 10_000))
        opened.commit()
        highest = max(highest, queue.memory)
    assert highest < 200_000
    taken: list[Message] = []
    while messages := queue.take(3):
        taken += messages
        queue.settle(messages, Outcome.ACKNOWLEDGED)
        highest = max(highest, queue.memory)
    assert [one.seq for one in taken] == list(range(1, 501))
    assert highest < 200_000
    assert queue.memory == 0


def test_a_restart_reads_no_message_until_it_is_wanted(opened: Opened) -> None:
    queue = make_queue(opened)
    for _ in range(20):
        queue.push(kept(50, 20_000))
        opened.commit()
    queue = stop(opened, queue)
    assert (queue.ready_count, queue.memory) == (1000, 0)
    assert [one.seq for one in queue.take(3)] == [1, 2, 3]
    assert queue.memory < 300 * (20_000 + OVERHEAD)


def serve_until(opened: Opened, queue: ClassicQueue, taker: Taker, count: int) -> None:
    """Run the store and the queue until a consumer has so many messages."""

    def served() -> bool:
        if queue.wakes_at < NEVER:
            queue.maintain(clock.now())
        return len(taker.held) >= count

    opened.work_until(served)


def restored(opened: Opened) -> ClassicQueue:
    """Return a queue of 1,000 messages of 20 KB, all on disk only."""
    queue = make_queue(opened)
    for _ in range(20):
        queue.push(kept(50, 20_000))
        opened.commit()
    return stop(opened, queue)


def test_consumers_are_served_by_a_thread_that_reads_ahead(opened: Opened) -> None:
    queue = restored(opened)
    taker = Taker(queue).start()
    assert taker.held == []  # a thread is reading
    serve_until(opened, queue, taker, 1000)
    assert [one.seq for one in taker.held] == list(range(1, 1001))
    assert queue.ready_count == 0


def test_while_a_consumer_waits_for_the_thread_others_are_served_in_order(opened: Opened) -> None:
    queue = restored(opened)
    taker = Taker(queue).start()
    assert [one.seq for one in queue.take(2)] == [1, 2]  # basic.get does not wait
    queue.push(kept(1, 1))
    serve_until(opened, queue, taker, 999)
    assert [one.seq for one in taker.held] == list(range(3, 1002))


def test_what_is_read_while_a_queue_is_purged_is_forgotten(opened: Opened) -> None:
    queue = restored(opened)
    taker = Taker(queue).start()
    assert queue.purge() == 1000
    queue.push(kept(3, 1))
    assert [one.seq for one in taker.held] == [1001, 1002, 1003]
    opened.commit()
    opened.store.wait(opened.store.flush())
    assert [one.seq for one in taker.held] == [1001, 1002, 1003]


def test_what_is_read_while_a_queue_is_deleted_is_forgotten(opened: Opened) -> None:
    queue = restored(opened)
    taker = Taker(queue).start()
    queue.delete()
    assert taker.gone
    opened.commit()
    assert taker.held == []
    assert make_queue(opened.crash()).ready_count == 0


def test_a_thousand_small_commits_are_taken_in_one_go(opened: Opened) -> None:
    queue = make_queue(opened)
    for _ in range(1200):
        queue.push(kept(1, 1))
        opened.store.flush()
    queue = stop(opened, queue)
    assert [one.seq for one in queue.take(5000)] == list(range(1, 1201))


def test_messages_that_are_not_stored_may_lie_between_those_that_are(opened: Opened) -> None:
    queue = make_queue(opened, budget=0)
    for _ in range(3):
        queue.push([message(b"x", persistent=seq % 3 != 0) for seq in range(10)])
        opened.commit()
    assert [one.seq for one in queue.take(100)] == list(range(1, 31))


def test_purging_spares_the_unacknowledged_messages_of_a_batch_also_in_the_store(opened: Opened) -> None:
    queue = make_queue(opened, budget=0)
    queue.push(kept(10, 100))
    opened.commit()
    queue.push(kept(1, 100))
    queue.take(3)
    assert queue.purge() == 8
    opened.commit()
    again = make_queue(opened.crash())
    assert [(one.seq, one.redelivered) for one in again.take(100)] == [(1, True), (2, True), (3, True)]


def test_what_was_delivered_before_a_clean_stop_says_so_after_it(opened: Opened) -> None:
    queue = make_queue(opened)
    queue.push(kept(6, 1))
    queue.settle(queue.take(2), Outcome.ACKNOWLEDGED)
    queue.settle(queue.take(2), Outcome.REQUEUED)
    for _ in range(2):
        queue = stop(opened, queue)
        assert [(one.seq, one.redelivered) for one in queue.peek(0, 99)] == [
            (3, True),
            (4, True),
            (5, False),
            (6, False),
        ]


def numbers_after(opened: Opened, queue: ClassicQueue, *, persistent: bool) -> tuple[int, int]:
    """Return the number of the next message after a clean stop, and after a crash."""
    queue.push([message(b"x", persistent=persistent)])
    opened.commit()
    return make_queue(opened.crash()).next_seq, stop(opened, queue).next_seq


def test_numbers_are_not_given_twice_also_after_a_restart(opened: Opened) -> None:
    queue = make_queue(opened)
    queue.push(kept(5, 1))
    queue.settle(queue.take(5), Outcome.ACKNOWLEDGED)
    after_crash, after_stop = numbers_after(opened, queue, persistent=True)
    assert after_stop == 7
    assert 7 <= after_crash <= 7 + SEQUENCE_BLOCK


def test_nor_are_the_numbers_of_messages_that_are_not_stored(opened: Opened) -> None:
    after_crash, after_stop = numbers_after(opened, make_queue(opened), persistent=False)
    assert after_stop == 2
    assert after_crash >= 2


def test_restored_messages_expire_as_they_were_to(opened: Opened) -> None:
    """Restored messages keep their expiry, whatever time to live is set later."""
    queue = make_queue(opened)
    queue.set_limits(Limits(message_ttl=1))
    queue.push([message(b"goes", persistent=True)])
    queue.set_limits(Limits())
    queue.push([message(b"stays", persistent=True)])
    opened.commit()
    queue = stop(opened, queue)
    queue.set_limits(Limits(message_ttl=1))
    time.sleep(0.01)
    assert [one.body for one in queue.take(2)] == [b"stays"]


def test_octets_that_were_settled_before_a_restart_do_not_count(opened: Opened) -> None:
    queue = make_queue(opened)
    queue.push(kept(11, 100))
    queue.settle(queue.take(2), Outcome.ACKNOWLEDGED)
    queue = stop(opened, queue)
    queue.set_limits(Limits(max_length_bytes=900))
    while queue.wakes_at < NEVER:
        queue.maintain(clock.now())
    assert queue.ready_count == 9


def test_nor_do_they_hinder_what_has_room(opened: Opened) -> None:
    queue = make_queue(opened)
    sizes = [10, 20, 30, 40] * 5
    queue.push([message(bytes(size), persistent=True) for size in sizes])
    taken = queue.take(20)
    queue.settle([one for one in taken if len(one.body) > 20], Outcome.ACKNOWLEDGED)
    queue = stop(opened, queue)
    queue.set_limits(Limits(max_length_bytes=200, overflow="reject-publish"))
    refused = queue.push([message(bytes(10), persistent=True) for _ in range(7)])
    assert (len(refused), queue.ready_count) == (2, 15)


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls, Python's and C's."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def taken_behind(opened: Opened, queue: ClassicQueue, count: int, *, stored: bool) -> int:
    """Return the number of function calls to take ``count`` messages, in thousands, from behind ``count`` others."""
    for _ in range(2 * count // 1000):
        queue.push(kept(1000, 1))
        opened.commit()
    if stored:
        queue = stop(opened, queue)
    taken: list[int] = []

    def take() -> None:
        while messages := queue.take_range(count + 1, 2 * count, 1000):
            taken.extend(one.seq for one in messages)

    calls = calls_of(take)
    assert taken == list(range(count + 1, 2 * count + 1))
    assert [one.seq for one in queue.take(3 * count)] == list(range(1, count + 1))
    return calls


@pytest.mark.parametrize("stored", [False, True])
def test_what_lies_before_a_range_is_not_touched_when_it_is_taken(tmp_path: Path, stored: bool) -> None:
    """Taking a range costs nothing for messages before the range, as for reservations after a restart."""
    calls = []
    for count in (4000, 16_000):
        opened = Opened(tmp_path / str(count))
        calls.append(taken_behind(opened, make_queue(opened, budget=1 << 30), count, stored=stored))
        opened.close()
    assert calls[1] < 6 * calls[0]


@pytest.mark.parametrize("stored", [False, True])
def test_what_moves_to_the_store_while_a_queue_is_looked_through_is_seen_once(opened: Opened, stored: bool) -> None:
    queue = make_queue(opened, budget=1 << 20)
    queue.push(kept(20, 10))
    if stored:
        opened.commit()
    looking = queue.view.browse(1, 20)
    found = [next(looking)]
    queue.page_out(0)  # a step takes the last five, and so part of a run
    for messages in looking:
        found.append(messages)
        queue.page_out(0)
        queue.push(kept(2, 10))
    assert [one.seq for messages in found for one in messages] == list(range(1, 21))


def test_what_rests_on_disk_leaves_few_and_small_objects_in_memory(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch on disk has one object in memory, with the numbers inside.

    Single objects would lie among freed messages, and each would keep a megabyte of memory from the system.
    """
    monkeypatch.setattr(batch, "MAX_COUNT", 5)
    monkeypatch.setattr(ready_messages, "CUT_AT_ONCE", 5)
    earlier = segments()
    queue = make_queue(opened, budget=1 << 20)
    queue.push(kept(13, 10))
    opened.commit()
    before = queue.memory
    while queue.memory == before:  # all segments are cut before any memory is freed
        assert queue.page_out(0)
    made = [one for one in segments() if one not in earlier]
    assert sorted((one.first_seq, one.last_seq) for one in made) == [(1, 5), (6, 10), (11, 13)]
    held = [one for segment in made for owner in (segment, segment.batch) for one in gc.get_referents(owner)]
    assert not [one for one in held if isinstance(one, int)]
    assert len({id(one) for one in held if isinstance(one, BuiltinFunctionType)}) == 1
    while queue.page_out(0):
        pass
    assert queue.memory == 0
    assert [one.seq for one in queue.take(13)] == list(range(1, 14))


def segments() -> list[BatchSegment]:
    """Return all segments in the memory of this process."""
    return [one for one in gc.get_objects() if isinstance(one, BatchSegment)]
