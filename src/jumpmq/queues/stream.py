"""Streams: append-only, read by any number of consumers from chosen offsets.

Messages are numbered by their *offset*, from 0. They are in segment files (:mod:`jumpmq.store.stream_log`), become
visible when complete, and leave when retention deletes whole segments. Deliveries are cut from the columns of a file as
they are stored; an acknowledgement only makes room for the next delivery. Members of a consumer group consume from the
group's position (:mod:`jumpmq.queues.group_offsets`), which their settlements advance.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.fields import INTEGER_TYPES, Field
from jumpmq.amqp.frames import with_header
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues import clock, settings
from jumpmq.queues.argument_checks import DeclaredArguments, seconds_of
from jumpmq.queues.arguments import Limits
from jumpmq.queues.base import Outcome, Queue, QueueContext
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.delivery import CHUNK
from jumpmq.queues.group_offsets import GroupOffset
from jumpmq.queues.memory import Held, held_octets
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.runs import carries
from jumpmq.queues.slots import Share
from jumpmq.queues.stream_filter import FILTER, UNFILTERED, StreamFilter
from jumpmq.queues.stream_move import StreamMove
from jumpmq.queues.stream_offsets import StreamOffsets
from jumpmq.queues.stream_rows import OFFSET, StreamRows
from jumpmq.queues.stream_view import StreamView
from jumpmq.queues.view import View
from jumpmq.store import Batch
from jumpmq.store.definitions import named
from jumpmq.store.errors import Unreadable
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import SEGMENT_BYTES, StreamLog
from jumpmq.store.stream_segment import Chunk, messages_of

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = OFFSET.encode()

SEARCHING = 0.002
"""Seconds of filtered search per step; the last chunk may exceed them."""

READ_AGAIN = 1.0
"""Seconds before a failed read is repeated for a consumer; no message is skipped."""

MAX_SEGMENT = 3_000_000_000
"""Maximum octets of a segment."""


class Stream(Queue):
    """A stream of a virtual host.

    Attributes:
        log: the files of the stream.
        move: the move of the stream from home to home.
    """

    type = "stream"
    policy_target = "streams"
    group_size_argument = "x-initial-cluster-size"
    replicated = True
    argument_checks = settings.argument_checks(type)
    refused_policy_keys = settings.refused_policy_keys(type)
    always_durable = True
    append_only = True
    consumer_argument_names = frozenset({OFFSET, FILTER, UNFILTERED})

    @classmethod
    def problem_with(cls, arguments: DeclaredArguments) -> str | None:
        segment = arguments.get("x-stream-max-segment-size-bytes")
        if segment is not None and segment.value > MAX_SEGMENT:
            return "Exceeded max value for x-stream-max-segment-size-bytes"
        filters = arguments.get("x-stream-filter-size-bytes")
        if filters is not None and not (filters.type in INTEGER_TYPES and 16 <= filters.value <= 255):
            return "Invalid value for  x-stream-filter-size-bytes"
        return None

    def __init__(self, vhost: str, name: str, *, context: QueueContext | None = None, **declared: Any) -> None:
        context = QueueContext() if context is None else context
        super().__init__(vhost, name, context=context, **declared)
        self._files = StreamFiles(None) if context.streams is None else context.streams  # files of all streams
        self.log = self._files.open(self.id, named(name, vhost))  # files of this stream
        self.log.listen(self._on_growth)
        self.log.segment_bytes = self.limits.segment_bytes or SEGMENT_BYTES
        self._next = self.log.end  # offset of the next message
        self._staged: deque[tuple[int, int]] = deque()  # messages not on disk yet
        self._memory = 0  # octets of these messages
        self._readers: dict[Consumer, _Reader] = {}  # read position of each consumer
        self._next_search = 0  # position of the next waiting consumer to be searched for
        self.offsets: StreamOffsets = StreamOffsets(self, self._journal)
        self.move = StreamMove(self, self._files, self._journal)
        self._returning = 0  # number of unfinished returns in steps

    # --- moving from home to home ---

    def put_behind(self, queue: Queue) -> None:
        super().put_behind(queue)
        self.move.begin()

    def leave_consumers(self) -> None:
        readers, self._readers = self._readers, {}
        for consumer in readers:
            consumer.cancelled()

    def go_on_with(self, log: StreamLog) -> None:
        """Go on with files that have come from the previous home."""
        self.log = log
        log.listen(self._on_growth)
        log.segment_bytes = self.limits.segment_bytes or SEGMENT_BYTES
        self._next = log.end
        self.offsets.take_over()
        for reader in self._readers.values():
            if reader.position is None:
                reader.offset = self.start_of(reader.consumer.arguments)
        self.dispatch()

    def follow_up(self, count: int) -> bool:
        return self.move.follow_up(count)

    # --- contents ---

    @property
    def first(self) -> int:
        """The lowest available offset."""
        return self.log.first

    @property
    def end(self) -> int:
        """Offset after the last complete message."""
        return self.log.end

    @property
    def ready_count(self) -> int:
        return self.log.end - self.log.first

    @property
    def memory(self) -> int:
        return self._memory

    @property
    def next_seq(self) -> int:
        return self._next

    def restore(self, batches: list[Batch], records: QueueRecords) -> None:
        self.move.restore(records)
        self.offsets.restore(records.offsets, clean=records.clean)
        self._retain()

    def checkpoint(self) -> None:
        self.offsets.write(self.offsets)

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        if carries(messages, _OFFSET):
            messages = [_without_offset(message) for message in messages]
        if self.behind is not None:
            return self.behind.push(messages)
        self.append(messages)
        return []

    def append(self, messages: list[Message]) -> None:
        """Add messages at the end, whether the stream is moving or not."""
        if not messages:
            return
        self._files.append(self.log, messages)
        self._next += len(messages)
        self.published += len(messages)
        octets = held_octets(messages)
        self._staged.append((self._next, octets))
        self._charge(octets)

    def _charge(self, octets: int) -> None:
        """Add octets waiting for the disk; a negative number subtracts."""
        self._memory += octets
        self._account.charge("staged", octets)

    def _release_written(self) -> None:
        while self._staged and self._staged[0][0] <= self.log.end:
            self._charge(-self._staged.popleft()[1])

    @property
    def view(self) -> View:
        self.move.require_files()
        return StreamView(self.log, f"stream '{self.name}' in vhost '{self.vhost}'")

    def take(self, count: int) -> list[Message]:
        raise self._unsupported("basic.get")

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        raise self._unsupported("taking a range")

    def settle(self, messages: list[Message], outcome: Outcome, held: Held = Held.UNACKNOWLEDGED) -> None:
        self.unacknowledged_count -= len(messages)
        if outcome is Outcome.ACKNOWLEDGED:
            self.acknowledged += len(messages)
        if not self.offsets or self.deleted:
            return
        back = outcome in (Outcome.REQUEUED, Outcome.FAILED, Outcome.CONSUMER_GONE)
        self.offsets.settle_messages(messages, back=back)

    def begin_return(self) -> None:
        self._returning += 1

    def end_return(self) -> None:
        self._returning -= 1
        if not self._returning and self.offsets:
            self.dispatch()

    def purge(self) -> int:
        raise self._unsupported("queue.purge")

    def delete(self) -> int:
        self.tell_gone()
        count, self.deleted = self.ready_count, True
        self.offsets.drop()
        self._files.remove(self.id)
        if self.behind is not None:
            count += self.behind.delete()
            self.move.forget()
        self._charge(-self._memory)
        self.log.fall_silent()
        readers, self._readers = self._readers, {}
        for consumer in readers:
            consumer.cancelled()
        return count

    def status(self) -> dict[str, Any]:
        return {
            "members": [self.node],
            "online": [self.node],
            "readers": {self.node: len(self._readers)},
            "segments": self.log.segment_count,
            "first_offset": self.first,
            **self.move.shown,
        }

    # --- consumers ---

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._readers)

    def subscribe(self, consumer: Consumer, share: Share | None = None) -> None:
        self._require_credit(consumer)
        self._readers[consumer] = _Reader(consumer, self.start_of(consumer.arguments))
        self.touch()

    def subscribe_at(self, position: GroupOffset, consumer: Consumer) -> None:
        """Serve a consumer from its group's offset."""
        self._require_credit(consumer)
        self._readers[consumer] = _Reader(consumer, 0, position)
        self.touch()

    def replace_position(self, before: GroupOffset | None, position: GroupOffset) -> None:
        """Continue the members of a group at a new offset.

        Args:
            before: the group's offset so far; None for a new group.
        """
        for reader in self._readers.values():
            if before is not None and reader.position is before:
                reader.position = position

    def _require_credit(self, consumer: Consumer) -> None:
        """Refuse a consumer without prefetch."""
        if not consumer.prefetch:
            raise PreconditionFailed(
                f"consumer prefetch count is not set for stream queue '{self.name}' in vhost '{self.vhost}'"
            )
        if consumer.no_ack:
            raise NotImplementedByServer(
                f"automatic acknowledgement not supported by stream queue '{self.name}' in vhost '{self.vhost}'"
            )

    def unsubscribe(self, consumer: Consumer) -> None:
        if self._readers.pop(consumer, None) is not None:
            self.touch()

    def dispatch(self) -> None:
        until = time.perf_counter() + SEARCHING
        for reader in list(self._readers.values()):
            self._serve(reader, until)

    def serve(self, consumer: Consumer) -> None:
        if (reader := self._readers.get(consumer)) is not None:
            self._serve(reader, time.perf_counter() + SEARCHING)

    def _serve(self, reader: "_Reader", until: float, *, searches: bool = False) -> None:
        """Deliver messages to a consumer within its capacity.

        Args:
            until: time by the performance counter at which a filtered search pauses.
            searches: True to search one chunk even after that time.
        """
        reader.waits = False
        if reader.position is not None:
            self._serve_member(reader, reader.position, until)
            return
        # Only complete messages: a crash must not undo a delivered message.
        while (capacity := reader.consumer.capacity()) > 0 and reader.offset < self.log.end:
            if reader.rows is None or not reader.rows.has(reader.offset):
                if reader.filter is not None and not searches and time.perf_counter() > until:
                    reader.waits = True
                    self.wake(clock.now())
                    return
                try:
                    chunk = self._chunk_for(reader, reader.offset)
                except Unreadable:
                    return
                if chunk is None:  # everything left is damaged
                    reader.offset = self.log.end
                    return
                reader.offset = max(reader.offset, chunk.first)  # deleted by retention, or lost
                if reader.filter is not None:
                    reader.wanted, searches = reader.filter.rows(chunk.batch), False
                reader.rows = StreamRows(chunk.first, chunk.message_count, chunk.batch)
            most = min(capacity, CHUNK)
            if reader.filter is not None:
                reader.offset, most = reader.rows.run(reader.wanted, reader.offset, most)
                if not most:
                    continue
            rows = reader.rows.cut(reader.offset, most)
            reader.offset += len(rows)
            self.delivered += len(rows)
            self.unacknowledged_count += len(rows)
            reader.consumer.deliver_rows(rows)
        if capacity <= 0 and reader.offset < self.log.end:
            reader.consumer.passed_over()

    def _serve_member(self, reader: "_Reader", position: GroupOffset, until: float) -> None:
        """Deliver as :meth:`_serve`, to a member of a consumer group at ``position``."""
        # The returning messages come before further ones.
        if self._returning:
            return
        while (capacity := reader.consumer.capacity()) > 0 and position.ready(self.log.end):
            offset, most = position.wanted(min(capacity, CHUNK))
            if reader.rows is None or reader.batch is None or not reader.rows.has(offset):
                try:
                    chunk = self._chunk_for(reader, offset)
                except Unreadable:
                    return
                if chunk is None or chunk.first > offset:  # deleted by retention, or lost
                    self.offsets.skip(position, self.log.end if chunk is None else chunk.first)
                    continue
                reader.rows, reader.batch, reader.offset = StreamRows(*chunk), chunk.batch, chunk.first
            count = len(reader.rows.cut(offset, most))
            messages = list(messages_of(reader.batch.slice(offset - reader.offset, count)))
            again = position.take(offset, count)
            self.returned |= again > 0
            for place, message in enumerate(messages):
                message.queue, message.slot, message.redelivered = self, position.number, place < again
                message.properties = with_header(message.properties, _OFFSET, message.seq)
            self.delivered += count
            self.redelivered += again
            self.unacknowledged_count += count
            reader.consumer.deliver(messages)
            for message in messages:
                message.body = message.properties = b""  # the stream has the body
            if time.perf_counter() > until:
                reader.waits = True
                self.wake(clock.now())
                return
        if capacity <= 0 and position.ready(self.log.end):
            reader.consumer.passed_over()

    def _chunk_for(self, reader: "_Reader", offset: int) -> Chunk | None:
        """Return the chunk with a message, or the next chunk if that is lost; None at the end.

        Raises:
            Unreadable: the disk does not return the chunk; the consumer waits for the next read.
        """
        try:
            return self.log.chunk_from(offset)
        except Unreadable:
            reader.waits = True
            self.wake(clock.now() + READ_AGAIN)
            raise

    def start_of(self, arguments: list[Field]) -> int:
        """See :meth:`StreamOffsets.start_of`."""
        try:
            return self._wanted(arguments)
        except Unreadable as error:
            raise PreconditionFailed(self._unreadable(error)) from None

    def _wanted(self, arguments: list[Field]) -> int:
        field = next((field for field in arguments if field.name == OFFSET), None)
        if field is None:
            # As in RabbitMQ, a consumer without an offset begins with the next message.
            return self.log.end
        value = field.value
        if field.type == "S":
            if value in ("first", "last", "next"):
                return {"first": self.first, "last": self.log.last_chunk, "next": self.log.end}[value]
            if (age := seconds_of(value)) is not None:
                return self.log.offset_of(time.time() - age)
            shown = f'{{longstr,<<"{value}">>}}'
        elif field.type == "T":
            return self.log.offset_of(float(value))
        elif field.type in INTEGER_TYPES:
            return max(int(value), self.first)
        else:
            shown = str(value)
        raise PreconditionFailed(
            f"invalid arg '{OFFSET}' for queue '{self.name}' in vhost '{self.vhost}': "
            f"{{invalid_stream_offset_arg,{shown}}}"
        )

    def _unreadable(self, error: Unreadable) -> str:
        return f"stream '{self.name}' in vhost '{self.vhost}' cannot be read: {error.reason}"

    def _unsupported(self, what: str) -> NotImplementedByServer:
        return NotImplementedByServer(
            f"{what} not supported by stream queues queue '{self.name}' in vhost '{self.vhost}'"
        )

    # --- retention ---

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits
        self.log.segment_bytes = limits.segment_bytes or SEGMENT_BYTES
        self._retain()

    def trim(self, now: float) -> None:
        self.offsets.write_if_due(now)
        self._retain()
        until = time.perf_counter() + SEARCHING
        waiting = [one for one in self._readers.values() if one.waits]
        # In turn: the search for one reader must not keep the other readers waiting.
        start = self._next_search % len(waiting) if waiting else 0
        for number, reader in enumerate((*waiting[start:], *waiting[:start])):
            if number and time.perf_counter() > until:  # the other streams continue in the next step
                self._next_search = start + number
                self.wake(now)
                return
            self._serve(reader, until, searches=not number)

    def _on_growth(self, begun: bool) -> None:
        if self.deleted:
            return
        self._release_written()
        # Retention drops whole segments, never the last one, so it is due when a segment begins.
        if begun:
            self._retain()
        self.dispatch()

    def _retain(self) -> None:
        if self.moved:  # the files may belong to another home by now
            return
        age = self.limits.max_age
        self.log.retain(self.limits.max_length_bytes, None if age is None else clock.stamps.oldest(age))
        self.offsets.skip_to(self.first)


class _Reader:
    """Read position of a consumer.

    Attributes:
        offset: offset of the consumer's next message.
        rows: chunk with that message.
        filter: the consumer's filter; None without one.
        wanted: rows of the chunk that match the filter.
        waits: True if the next chunk could not be read yet, or will be searched later.
        position: position of the consumer's group, which determines the next message; None outside a group. In a group,
            ``offset`` is the offset of the chunk, and ``batch`` its content.
    """

    __slots__ = ("batch", "consumer", "filter", "offset", "position", "rows", "waits", "wanted")

    def __init__(self, consumer: Consumer, offset: int, position: GroupOffset | None = None) -> None:
        self.consumer = consumer
        self.position = position
        self.batch: pa.RecordBatch | None = None
        self.offset = offset
        self.rows: StreamRows | None = None
        self.filter = None if position is not None else StreamFilter.of(consumer.arguments)
        self.wanted: list[int] = []
        self.waits = False


def _without_offset(message: Message) -> Message:
    """Return the message without an offset set by the publisher, perhaps from an earlier stream."""
    if _OFFSET not in message.properties:
        return message
    properties = Properties.parse(message.properties)
    properties.headers = [field for field in properties.headers or [] if field.name != OFFSET]
    same = message.copy()
    same.properties = properties.encode()
    return same
