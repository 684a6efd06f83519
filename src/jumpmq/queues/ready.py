"""The ready messages of a queue in order: the front in memory, a long tail in the store.

There are three parts. Every message is in exactly one of them::

    returned    a heap: messages returned out of order, one by one or in runs, with positions between others
                (ReturnedMessages)
    head        in order, in memory: the front (Head, or a Lane of the kernel)
    tail        segments in order, all behind the head: stored, or about to be stored (Tail)

The next message is the lower one of the first returned message and the first message of the head. To return a message
to its position thus costs one heap operation, however many messages are ready.

While the broker's memory account is tight, new messages go to the tail, and :meth:`ReadyMessages.page_out` moves the
back of the head there. A segment's messages leave memory once they are on disk; transient messages are stored for this
purpose. A thread reads segments back before consumers need them (:class:`ReadAhead`). Operations that cannot wait, such
as ``basic.get``, read a segment when they need it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import TypeAlias

from jumpmq.amqp.messages import Message
from jumpmq.queues._lanes import Lane
from jumpmq.queues.any_ready import NO_SEQ, AnyReady
from jumpmq.queues.bodies import BatchReader, drop, droppable, read_back
from jumpmq.queues.columns import Columns
from jumpmq.queues.head import RUN, Head, bounds
from jumpmq.queues.leftovers import Leftovers
from jumpmq.queues.memory import OVERHEAD, PAGED, MemoryAccount, held_octets
from jumpmq.queues.read_ahead import ReadAhead
from jumpmq.queues.returned import ReturnedMessages
from jumpmq.queues.runs import body_octets, ends_of_runs, of_body
from jumpmq.queues.segment import BatchSegment, segments_of
from jumpmq.queues.stored_run import StoredRun
from jumpmq.queues.tail import NO_TAIL, PAGED_AT_ONCE, Tail
from jumpmq.store import Batch
from jumpmq.store.layout import octets

__all__ = ["BatchReader", "ReadyMessages"]

TakenColumns: TypeAlias = tuple[list[Columns | StoredRun], list[Message]]
"""Messages taken for a reservation: similar messages as columns or unread, and the others behind them."""

_seq = attrgetter("seq")

CUT_AT_ONCE = 1 << 18
"""Number of messages moved to the tail before bodies are dropped, while memory is tight; otherwise all. Segments
allocated between freed memory would keep that memory from the system (measured: 280 MB with a million messages).
"""

NONE_RETURNED = ReturnedMessages()
"""Shared empty instance; never filled."""


class ReadyMessages(AnyReady):
    """Ready messages, lowest ``seq`` first.

    Args:
        reader: reads stored batches; None if nothing is stored.
        prepare: called with messages read from the store, before anything else uses them.
        account: memory account of messages in memory, as ``ready``.
        arrived: called when messages have arrived for which :meth:`take_octets` did not wait.
        head: initial messages in memory, in order; empty by default. The caller sets ``size`` and ``memory``
            accordingly.
    """

    __slots__ = (
        "_account", "_ahead", "_arrived", "_awaited", "_cut", "_dropped", "_head", "_prepare", "_reader", "_returned",
        "_tail", "memory", "size",
    )  # fmt: skip

    size: int
    memory: int

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
        head: Lane | None = None,
    ) -> None:
        self._reader = reader  # reads stored batches
        self._arrived = arrived  # called when messages read ahead have arrived
        self._ahead: ReadAhead | None = None  # reads the tail ahead; None before the first use
        self._awaited = False  # True if a taker waits for messages being read
        self._prepare = prepare  # prepares messages read from the store
        self._account = account  # memory account
        self._returned = NONE_RETURNED  # first part: returned messages
        self._head: Head | Lane = Head() if head is None else head  # second part: messages in memory
        self._tail = NO_TAIL  # third part: segments
        # Octets of bodies dropped from returned messages.
        self._dropped = 0
        self._cut = 0  # messages moved to the tail since the last complete drop
        self.memory = self.size = 0

    def __len__(self) -> int:
        return len(self._returned.seqs) + self._head.count + self._tail.count

    @property
    def is_plain(self) -> bool:
        """True if all messages are in memory and in order."""
        return not self._tail.segments and not self._returned.seqs

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        # Without reading it.
        segment = BatchSegment.stored(batch, delivered_seq)
        self._own_tail().restore(segment)
        self.size += segment.size

    def extend(self, messages: list[Message], size: int) -> None:
        self.size += size
        self._charge(held_octets(messages))
        # The tail comes behind the head: with a tail, new messages belong to the end of the tail.
        if not (self._tail.segments or self._account.tight):
            self._head.extend(messages)
            return
        self._shed()
        self._own_tail().extend(messages)

    def _own_tail(self) -> Tail:
        """Return the tail, to be filled."""
        if self._tail is NO_TAIL:
            self._tail = Tail()
        return self._tail

    # --- taking ---

    def take(self, count: int) -> list[Message]:
        while self._head.count < count and self._tail.segments:
            self._load()
        taken = self._pop(count)
        self._release(taken)
        return taken

    def take_octets(self, count: int, most: int) -> list[Message]:
        tail = self._tail.segments
        if not self._head.count and tail and (self._returned or not self._read_ahead()):
            self._load()
        taken = self._pop(count)
        size, held = octets(taken)
        if held > most:
            reached = accumulate(len(one.body) + len(one.routing_key) + len(one.properties) for one in taken)
            enough, held = next((place, held) for place, held in enumerate(reached, 1) if held >= most)
            self._head.put_first(taken[enough:])
            del taken[enough:]
            size = body_octets(taken)
        self._charge(-held - OVERHEAD * len(taken))
        self.size -= size
        # Before the head is empty, so that consumers do not wait for the disk.
        if tail and (self._ahead is None or self._head.count <= self._ahead.low):
            self._read_ahead()
        self._awaited = not taken and bool(tail)
        return taken

    def _read_ahead(self) -> bool:
        """Start reading the next part of the tail; return True if it will arrive."""
        if self._tail.segments[0].messages is not None:
            return False
        if self._ahead is None:
            self._ahead = ReadAhead(self._on_read)
        return self._ahead.ask(self._reader, self._tail.segments)

    def _on_read(self, found: Iterable[tuple[BatchSegment, list[Message]]]) -> None:
        """Append segments read to the head, if still next."""
        for segment, messages in found:
            # The segment may have been taken or loaded during the read.
            if self._tail.segments and self._tail.segments[0] is segment:
                self._load(messages)
        if self._awaited:
            self._awaited = False
            self._arrived()

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        if first_seq <= self.first_seq():
            return self._take_until(last_seq, count)
        taken = self._head.take_range(first_seq, last_seq, count)
        taken += self._take_from_tail(first_seq, last_seq, count - len(taken))
        if between := self._returned.take_range(first_seq, last_seq, count):
            taken = sorted(taken + self._with_bodies(between), key=_seq)
        self._release(taken)
        if surplus := taken[count:]:
            self.put_back(surplus)
        return taken[:count]

    def take_columns(self, last_seq: int, count: int, *, may_expire: bool) -> TakenColumns:
        """Remove up to ``count`` messages up to ``last_seq`` from the front, unless a returned message is there.
        Return similar messages as columns, and the others behind them as a list. Both are empty if the messages are
        not at hand.

        Args:
            may_expire: False if no message expires; True to look at the heads of stored messages.
        """
        if self._returned.seqs:
            return [], []
        if not self._head.count and self._tail.segments:
            return self._take_stored_columns(last_seq, count, may_expire), []
        messages = self._head.take(min(self._head.fitting(last_seq), count))
        columns = Columns.of(messages)
        if columns is not None:
            self._charge(-columns.octets - OVERHEAD * len(columns))
            self.size -= columns.bodies
        self._release(messages)
        return [columns] if columns is not None else [], messages

    def _take_stored_columns(self, last_seq: int, count: int, may_expire: bool) -> list[Columns | StoredRun]:
        """Take the first segment of the tail, unread if possible; otherwise as columns, if it is stored as columns."""
        segment = self._tail.segments[0]
        whole = segment.messages is None and segment.seqs is None and segment.last_seq <= last_seq
        redelivered = segment.delivered_seq >= segment.first_seq
        if not whole or segment.count > count:
            return []
        # Columns have one redelivered flag for all their messages.
        if redelivered and segment.delivered_seq < segment.last_seq:
            return []
        assert self._reader is not None and segment.batch is not None
        numbers = segment.first_seq, segment.last_seq
        unread = segment.exact and segment.is_on_disk and StoredRun.justified(segment.count, segment.size)
        if unread and not (may_expire and self._reader.may_expire(segment.batch, *numbers)):
            self._tail.remove()
            self.size -= segment.size
            run = StoredRun(
                self._reader, segment.batch, numbers, segment.size, segment.persistent, redelivered=redelivered
            )
            return [run]
        if not Columns.justified(segment.count):
            return []
        layouts = self._reader.layouts(segment.batch, *numbers)
        found = [Columns(layout) for layout in layouts or ()]
        # Damaged or settled messages are missing, so the segment is read as messages instead.
        if sum(map(len, found)) != segment.count:
            return []
        self._tail.remove()
        size = sum(columns.bodies for columns in found)
        self.size += self._tail.measured(segment, size) - size
        for columns in found:
            columns.like.persistent, columns.like.redelivered = segment.persistent, redelivered
        self._prepare([columns.like for columns in found])
        return [*found]

    def _take_from_tail(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Take a range as :meth:`take_range`. Segments are cut at its ends; earlier segments are not read."""
        tail, taken = self._tail, list[Message]()
        place = tail.place_of(first_seq)
        while len(taken) < count and place < len(tail.segments) and tail.segments[place].first_seq <= last_seq:
            segment = tail.remove(place)
            stored = segment.messages is None
            messages = self._taken_apart(segment)
            first, end = bounds(messages, first_seq, last_seq)
            end = min(end, first + count - len(taken))
            taken += messages[first:end]
            if stored:
                self._charge(held_octets(messages[first:end]))
            if end < len(messages):
                tail.insert(place, segment.batch, messages[end:], stored=stored)
            if first:
                tail.insert(place, segment.batch, messages[:first], stored=stored)
                place += 1
        return taken

    def _take_until(self, last_seq: int, count: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and (first := self.first()) is not None and first.seq <= last_seq:
            fitting = 1 if self._returned.seqs else self._head.fitting(last_seq)
            taken += self._pop(min(fitting, count - len(taken)))
        self._release(taken)
        return taken

    def take_expired(self, now: float, count: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and 0.0 < self.first_expiry() <= now:
            if not self._head.count and self._tail.segments:
                self._load()
            if self._returned.seqs:
                taken += self._pop(1)
                continue
            taken += self._head.take_expired(now, count - len(taken))
        self._release(taken)
        return taken

    def _pop(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the front, as far as they are in memory."""
        return self._pop_merged(count) if self._returned.seqs else self._head.take(count)

    def _pop_merged(self, count: int) -> list[Message]:
        head, returned = self._head, self._returned
        taken: list[Message] = []
        while returned and len(taken) < count:
            if not head.count and self._tail.segments:
                self._load()
            if head.count and head.first.seq < returned.first_seq:
                taken += head.take(1)
            else:
                taken.append(returned.pop())
        taken = self._with_bodies(taken)
        if len(taken) < count and not returned:
            taken += self._pop(count - len(taken))
        return taken

    def _with_bodies(self, messages: list[Message]) -> list[Message]:
        """Return messages with their dropped bodies read back; damaged messages are left out."""
        if not (paged := of_body(messages, PAGED)):
            return messages
        assert self._reader is not None
        self._dropped -= sum([message.paged for message in paged])
        held = held_octets(paged)
        lost = read_back(paged, self._reader)
        self._charge(held_octets(paged) - held - held_octets(lost))
        return [message for message in messages if message.body is not PAGED] if lost else messages

    def _release(self, taken: list[Message]) -> None:
        size, held = octets(taken)
        self._charge(-held - OVERHEAD * len(taken))
        self.size -= size

    def _charge(self, octets: int) -> None:
        self.memory += octets
        self._account.charge("ready", octets)

    def put_back(self, messages: list[Message]) -> None:
        messages = sorted(messages, key=_seq)
        self._charge(held_octets(messages))
        self.size += body_octets(messages)
        if messages[-1].seq < self._first_seq_in_order():
            self._head.put_first(messages)
        else:
            if self._returned is NONE_RETURNED:
                self._returned = ReturnedMessages()
            self._returned.add(messages)

    def _first_seq_in_order(self) -> int:
        """Return the lowest number among messages that were not returned."""
        if self._head.count:
            return self._head.first.seq
        return self._tail.segments[0].first_seq if self._tail.segments else NO_SEQ

    # --- looking ---

    def first_seq(self) -> int:
        in_order = self._first_seq_in_order()
        return min(in_order, self._returned.first_seq) if self._returned.seqs else in_order

    def count_upto(self, last_seq: int) -> int:
        # Reads at most one segment.
        count = sum(1 for seq in self._returned.seqs if seq <= last_seq)
        head, seq = self._head, 0
        while head.count and seq <= last_seq and head.last.seq >= seq:
            run = head.since(seq)
            count += bisect_right(run, last_seq, key=_seq)
            seq = run[-1].seq + 1
        for segment in self._tail.segments:
            if segment.first_seq > last_seq:
                break
            if segment.last_seq <= last_seq:
                count += segment.count
            else:
                count += sum(1 for message in self._messages(segment) if message.seq <= last_seq)
        return count

    def first(self) -> Message | None:
        """Return the message at the front, without taking it."""
        if not self._head.count and self._tail.segments:
            self._load()
        if self._returned.seqs and not (self._head.count and self._head.first.seq < self._returned.first_seq):
            return self._returned.first
        return self._head.first if self._head.count else None

    def first_expiry(self) -> float:
        if self._head.count or self._returned.seqs or not self._tail.segments:
            first = self.first()
            return first.expires_at if first is not None else 0.0
        segment = self._tail.segments[0]
        if segment.expires_at is None:
            first = self._look_at_first(segment)
            segment.expires_at = 0.0 if first is None else first.expires_at
        return segment.expires_at

    def _look_at_first(self, segment: BatchSegment) -> Message | None:
        """Return the first message of a stored segment; None if the file is damaged."""
        assert self._reader is not None and segment.batch is not None
        found = self._reader.read(segment.batch, segment.first_seq, segment.first_seq)
        found = found or self._messages(segment)  # the lowest number may be settled
        return found[0] if found else None

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        in_order = self._in_order(first_seq, last_seq)
        if self._returned.seqs:
            merged = merge(chain.from_iterable(in_order), list(self._returned), key=_seq)
            in_order = iter(lambda: list(islice(merged, RUN)), [])
        for messages in in_order:
            first, end = bounds(messages, first_seq, last_seq)
            whole = end - first == len(messages) <= RUN
            for start in range(first, end, RUN):
                yield from self._readable(messages if whole else messages[start : min(start + RUN, end)])

    def _in_order(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        """Yield messages as :meth:`between`, without returned ones; messages moved between head and tail meanwhile are
        found.
        """
        while first_seq <= last_seq:
            if self._head.count and self._head.last.seq >= first_seq:
                messages = self._head.since(first_seq)
                first_seq = messages[-1].seq + 1
            else:
                place = self._tail.place_of(first_seq)
                if place == len(self._tail.segments):
                    return
                segment = self._tail.segments[place]
                found = self._messages(segment)
                # Earlier messages may have been moved here from the head, and a copy does not grow with the segment.
                messages = found[bisect_left(found, first_seq, key=_seq) :]
                first_seq = segment.last_seq + 1
            yield messages

    def _readable(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Yield the messages, reading dropped bodies from disk singly."""
        if not of_body(messages, PAGED):
            yield messages
            return
        for message in messages:
            paged = message.body is PAGED
            yield self._messages(BatchSegment(message.batch, [message], 0).forgotten()) if paged else [message]

    def front(self) -> Message | None:
        return self.first() if self._head.count or (self._returned and not self._tail.segments) else None

    def in_memory(self) -> tuple[int, int]:
        stored, stored_size = self._tail.stored()
        return len(self) - stored, self.size - stored_size - self._dropped

    def spilled(self) -> tuple[int, int]:
        return self._tail.spilled()

    def measure(self, segments: int) -> bool:
        for segment in self._tail.estimated(segments):
            self.size += self._tail.measured(segment, body_octets(self._messages(segment)))
        return self._tail.is_measured

    # --- leaving ---

    def leave(self) -> Leftovers:
        left = Leftovers(self._head, self._returned, self._tail.segments, self._messages, self._account)
        self._account.move("ready", "staged", self.memory)
        self._returned, self._head, self._tail = NONE_RETURNED, Head(), NO_TAIL
        self.memory = self.size = self._dropped = 0
        return left

    def close(self) -> None:
        super().close()
        self._ahead = None

    # --- memory ---

    def page_out(self, kept: int) -> int:
        done = 0 if self._cut >= CUT_AT_ONCE and self._account.tight else self._shorten_head(kept)
        if not done:
            done = self._shed()
        if not done and self._cut:
            self._cut = 0
            done = self._shorten_head(kept)
        if self._reader is not None:
            done += self._tail.spill(self._reader)
        return done + self._returned.page_out(PAGED_AT_ONCE, self._drop_bodies)

    def _shorten_head(self, kept: int) -> int:
        """Move one step of messages from the end of the head to the tail, still in memory; return their number."""
        head = self._head
        if self._reader is None or not head.count:
            return 0
        count = min(max(head.count - kept // held_octets([head.last]), 0), PAGED_AT_ONCE)
        if count:
            moved = head.take_last(count)
            if count == PAGED_AT_ONCE and (part := _end_of_batch(moved)):
                head.extend(moved[:part])  # in a separate step: otherwise that batch would be read twice
                del moved[:part]
            if any(moved[end - 1].batch is None for end in ends_of_runs(moved)):
                self._reader.spill([message for message in moved if message.batch is None])
            self._own_tail().put_first(segments_of(moved))
            count = len(moved)
            self._cut += count
        return count

    def _drop_bodies(self, messages: list[Message]) -> None:
        """Drop bodies of returned messages, scattered between others and so unable to become segments."""
        if self._reader is None:
            return
        dropped = droppable(messages, self._reader)
        self._dropped += body_octets(dropped)
        self._charge(-drop(dropped))

    def _shed(self) -> int:
        """Drop one step of safely stored messages from memory, and return the number dropped."""
        count, freed = self._tail.shed()
        if freed:
            self._charge(-freed)
        return count

    def _load(self, read: list[Message] | None = None) -> None:
        """Move the first segment of the tail, possibly already read, to the end of the head."""
        segment = self._tail.remove()
        stored = segment.messages is None
        messages = self._taken_apart(segment, read)
        if stored:
            self._charge(held_octets(messages))
        self._head.extend(messages)

    def _taken_apart(self, segment: BatchSegment, read: list[Message] | None = None) -> list[Message]:
        """Return the messages of a segment removed from the tail; stored ones are not charged yet."""
        stored = segment.messages is None
        messages = self._messages(segment, read)
        if stored:
            self.size += self._tail.measured(segment, body_octets(messages))
        else:
            segment.messages = None  # nothing waits for its write any more
        return messages

    def _messages(self, segment: BatchSegment, read: list[Message] | None = None) -> list[Message]:
        if segment.messages is not None:
            return segment.messages
        if read is None:
            assert self._reader is not None and segment.batch is not None
            read = self._reader.read(segment.batch, segment.first_seq, segment.last_seq)
        messages = segment.of(read)
        for message in messages:
            message.persistent = segment.persistent
            if message.seq <= segment.delivered_seq:
                message.redelivered = True
        self._prepare(messages)
        # The store returns all messages as persistent, also those stored for lack of memory.
        return messages


def _end_of_batch(messages: list[Message]) -> int:
    """Return the number of first messages that end an earlier begun batch, if more follow; otherwise 0."""
    batch = messages[0].batch
    if batch is None or batch is messages[-1].batch or batch.first_seq == messages[0].seq:
        return 0
    return next(place for place, message in enumerate(messages) if message.batch is not batch)
