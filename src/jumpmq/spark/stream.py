"""The streaming reader of queues: a query is a consumer, and a micro-batch its prefetch.

How it works. Spark's *offset* is ``{"group": NAME, "query": NAME, "broker": IDENTITY, "source": TEXT, "queues": {QUEUE:
RESERVATION, ...}, "cut": {...}, "seen": {...}}``. ``queues`` has the last reservation of the query's group in each
queue. ``cut`` is the division of the micro-batch that ends there into partitions. ``seen`` is the state of the broker's
data directories then, to detect restored backups. Spark keeps offsets in the query's checkpoint. The order of events is

1. ``latestOffset(start)``: Spark calls it after the micro-batch that ended at ``start`` is complete, sink included. So
   the broker acknowledges all reservations up to ``start``, and reserves more messages.
2. Spark writes the new end to the checkpoint's offset log and calls ``partitions(start, end)``, and its tasks ``read``
   the partitions. The broker answers every repeated read with the same rows.
3. Spark writes the completed micro-batch to the checkpoint's commit log.

A query that dies between 2 and 3 restarts at 2, with the same offsets; otherwise a query restarts at 1. Reservations
that are in no offset log stay outstanding, and become part of the next micro-batch. A query leaves no unacknowledged
message if it ends with a 1 that finds no further message, as ``availableNow`` does. A query that knows its checkpoint
(:mod:`jumpmq.spark.checkpoints`) reads the commit log too, and acknowledges soon after 3.

Spark's ``commit`` is too late to be of use: Spark calls it for a micro-batch after the next one is planned, and never
for the last one. Spark never calls ``stop`` either, but kills the process that plans.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jumpmq.spark.checkpoints import JVMCheckpoints
from jumpmq.spark.client import Client, SliceFields
from jumpmq.spark.errors import JumpMQError, MessagesGone, NotThere, QueueInUse
from jumpmq.spark.lag import behind
from jumpmq.spark.minimum import Minimum
from jumpmq.spark.nothing_read import Warnings, without_queues
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.partitions import Division, QueueSlices, pieces
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import OWNER_EPOCH, wire_columns
from jumpmq.spark.session import ReaderSession
from jumpmq.spark.streams.kinds import origin_of, queue_names, require_same_origin

IDLE_PAUSE = 0.05
"""Seconds to wait before an answer without new messages, because without a trigger, Spark asks again at once."""

UNREAD_LOOK = 10.0
"""Seconds between two checks for queues without readers."""

Offset = dict[str, Any]

GO_ON = "set option 'failOnDataLoss' to false to go on without"

EACH_ITS_OWN = (
    "a message of a queue goes to one query, to one source of a query, also if a stream is joined with itself, or to "
    "one consumer group. For two readers of all messages, bind a queue for each to the exchange, or read a stream; to "
    "divide the messages between two queries, set option 'shareQueues' to true in both; to fill several tables from "
    "one query, use foreachBatch"
)


@dataclass
class ReservedSlices(QueueSlices):
    """Parts of a group's reservations, ``[queue, after, upto, first, count]``.

    Attributes:
        owner_epochs: owner epochs of the query by queue, as of planning: a later request could answer the epochs of a
            query that has taken over meanwhile.
    """

    group: str
    owner_epochs: dict[str, int]


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues in reservations."""

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int | None) -> None:
        self._options = options  # the user's options
        self._schema = schema  # columns of the rows
        self._cut = Division.of(options, parallelism)  # division of a batch into partitions
        self._minimum = Minimum(options)  # decides if a batch waits for more messages
        self._client = Client(options.broker)  # for requests to the broker
        self._initial: Offset | None = None  # the first offset; None before Spark asks for it
        # Last message number by queue in an availableNow run; None otherwise.
        self._last_seqs: dict[str, int] | None = None
        self._went_on = False  # whether this run has planned a batch with messages
        self._session: ReaderSession | None = None  # keeps the reservations
        self._reserved: dict[str, dict[str, Any]] = {}  # the broker's last answer, by queue
        self._warnings = Warnings()  # warnings for the user
        self._seen: dict[str, Any] = {}  # state of the broker's data directories, as last reported
        self._left: dict[str, int] = {}  # messages by queue, of unbound queues without a reader
        self._next_look = 0.0  # time of the next check for such queues, by the monotonic clock
        self._owner_epochs: dict[str, int] = {}  # last known owner epochs, by queue

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        if self._initial is None:  # Spark asks twice, and needs the same answer
            self._client.require_broker()
            name = uuid.uuid4().hex
            group = self._options.group or f"spark-{name}"
            origin = origin_of(self._options, self._client)
            self._initial = {"group": group, "query": name} | origin | {"queues": {}}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_octets is not None:
            return ReadMaxBytes(self._options.max_octets)
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the ends of the queues: later messages belong to the next query."""
        self._client.require_broker()
        exchange, names = self._options.exchange, queue_names(self._client, self._options)
        self._last_seqs = {queue: at["last_seq"] for queue, at in self._client.ranges(exchange, names).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._require_own(start)
        done, ends = start["queues"], self._ends(start)
        if self._minimum.messages and self._last_seqs is None and self._waits(start):
            time.sleep(IDLE_PAUSE)
            return start
        end = self._reserve(start, limit, ends)
        if end == done and ends != self._last_seqs and not self._went_on:  # the run with these ends was complete
            ends = self._last_seqs
            end = self._reserve(start, limit, ends)
        if end == done:
            time.sleep(IDLE_PAUSE if self._last_seqs is None else 0)
            return start
        self._went_on = True
        noted = {"queues": end, "cut": self._cut.noted(), "seen": self._seen}
        return start | noted | ({"ends": ends} if self._options.same_ends else {})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ready messages after the last micro-batch, in the form of :mod:`jumpmq.spark.metrics`."""
        found = sorted(self._reserved.items())
        waiting = {queue: at["ready"] for queue, at in found}
        rows = {queue: at["messages"] for queue, at in found if at["messages"]}
        oldest = {queue: at["oldest"] for queue, at in found if at.get("oldest") is not None}
        if not waiting and not self._warnings.now:
            return None
        down = [queue for queue, at in found if at.get("down")]
        shown = {"ready": waiting, "total": sum(waiting.values()), "rows": rows, "oldest": oldest, "down": down}
        octets = sum(at.get("ready_octets") or 0 for _, at in found)
        warnings = {"warnings": self._warnings.now} if self._warnings.now else {}
        return shown | {"unread": self._unread()} | (behind(waiting, octets) if waiting else {}) | warnings

    def _unread(self) -> dict[str, int]:
        """Return the messages of unbound queues without readers, by queue; checked at intervals."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + UNREAD_LOOK
            self._left = {one["name"]: one["ready"] for one in self._client.unread() if not one["bound"]}
        return self._left

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._require_own(start)
        done, session = start["queues"], self._opened(end)
        new = {queue: upto for queue, upto in end["queues"].items() if upto != done.get(queue)}
        if not new:
            return []
        places = session.places()
        self._note_owner_epochs(places)
        counts = _counts(places, {queue: (done.get(queue), upto) for queue, upto in new.items()})
        known = {queue: count for queue, count in counts.items() if count is not None}
        groups = [
            [[one.queue, done.get(one.queue), new[one.queue], one.first, one.count] for one in group]
            for group in pieces(known, Division.noted_in(end) or self._cut)
        ]
        # A repeated micro-batch, whose reservations a restarted broker may not know yet, is not divided.
        if unknown := [[queue, done.get(queue), new[queue], 0, None] for queue in new if queue not in known]:
            groups.append(unknown)
        return [ReservedSlices(slices, session.group, self._epochs_of(slices)) for slices in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReservedSlices)
        columns, convert = wire_columns(self._schema), converter(self._schema)
        is_owned = OWNER_EPOCH in self._schema.names
        client, accept_loss = Client(self._options.broker, met=True), not self._options.fail_on_data_loss
        try:
            for batch in client.reserved(partition.group, partition.slices, columns, accept_loss=accept_loss):
                yield convert(_owned(batch, partition.owner_epochs) if is_owned else batch)
        except NotThere as error:
            raise JumpMQError(f"{error}: it was deleted while the query used it; {GO_ON}") from None
        except MessagesGone as error:
            raise JumpMQError(f"{error}; {GO_ON}") from None
        except QueueInUse as error:
            raise JumpMQError(f"{error}; {EACH_ITS_OWN}") from None

    def _waits(self, start: Offset) -> bool:
        """Acknowledge processed messages; return True if the other messages are too few for a micro-batch."""
        self._reserve(start, ReadMaxRows(0), None)
        return self._minimum.waits(sum(at["ready"] + at["messages"] for at in self._reserved.values()))

    def _ends(self, start: Offset) -> dict[str, int] | None:
        """Return the number of the last message to read, by queue; None for no end."""
        if self._options.same_ends and self._last_seqs is not None:
            return start.get("ends") or self._last_seqs
        return self._last_seqs

    def _reserve(self, start: Offset, limit: ReadLimit, ends: dict[str, int] | None) -> dict[str, int]:
        """Acknowledge processed messages and reserve more; return the last reservation by queue."""
        done = start["queues"]
        try:
            seen = {"seen": start.get("seen", {})}
            answer = self._opened(start).reserve(self._wanted(done, limit, ends) | seen)
        except MessagesGone as error:
            raise JumpMQError(f"{error}: give the query a new checkpoint, or {GO_ON}") from None
        except QueueInUse as error:
            raise JumpMQError(f"{error}; {EACH_ITS_OWN}") from None
        self._require_nothing_lost(answer["lost"], done)
        self._warnings.hold([] if answer["queues"] else [without_queues(self._options)])
        self._reserved, self._seen = answer["queues"], seen["seen"] | answer.get("seen", {})
        self._note_owner_epochs(self._reserved)
        return {queue: at["offset"] for queue, at in sorted(self._reserved.items()) if queue in done or at["messages"]}

    def _wanted(self, done: dict[str, int], limit: ReadLimit, ends: dict[str, int] | None) -> dict[str, Any]:
        """Return the request for messages."""
        wanted: dict[str, Any] = {"accept_loss": not self._options.fail_on_data_loss}
        if isinstance(limit, ReadMaxRows):
            wanted["max_messages"] = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            wanted |= {"max_messages": self._options.max_messages, "max_octets": limit.max_bytes}
        if ends is not None:
            names = list(ends)
            wanted["last_seq"] = ends
        else:
            names = queue_names(self._client, self._options)
            wanted["exchange"] = self._options.exchange
        return wanted | {"queues": dict.fromkeys(names) | done}

    def _note_owner_epochs(self, places: dict[str, dict[str, Any]]) -> None:
        """Note the owner epochs in an answer; after a restart, a broker has none before the next reservation."""
        self._owner_epochs |= {queue: epoch for queue, at in places.items() if (epoch := at.get("owner_epoch"))}

    def _epochs_of(self, slices: list[SliceFields]) -> dict[str, int]:
        """Return the owner epochs for a partition, by queue; none for queues that several queries share."""
        known = {} if self._options.share_queues else self._owner_epochs
        return {queue: known[queue] for queue, *_ in slices if queue in known}

    def _require_nothing_lost(self, lost: dict[str, int | None], done: dict[str, int]) -> None:
        """Refuse to continue after a loss of data.

        Raises:
            JumpMQError: a deleted queue may have had unread messages, and ``failOnDataLoss`` is not false.
        """
        for queue, count in lost.items():
            if self._options.fail_on_data_loss and queue in done and count != 0:
                what = "messages" if count is None else f"{count} messages"
                raise JumpMQError(f"queue '{queue}' was deleted with {what} that the query had not read; {GO_ON}")

    def _require_own(self, offset: Offset) -> None:
        """Refuse the checkpoint of a different query.

        Raises:
            JumpMQError: the offset is of another group, source or broker.
        """
        if not isinstance(offset, dict) or "queues" not in offset or "group" not in offset:
            raise JumpMQError("the query's checkpoint is not of queues of JumpMQ: give it a checkpoint of its own")
        group = offset["group"]
        if self._options.group not in (None, group):
            raise JumpMQError(
                f"the query's checkpoint belongs to group '{group}', but option 'group' is '{self._options.group}'"
            )
        require_same_origin(offset, self._options, self._client)

    def _opened(self, offset: Offset) -> ReaderSession:
        """Return the query's session, opened on first use."""
        if self._session is None:
            group = offset["group"]
            self._client.require_broker()
            query = str(offset.get("query", group))
            checkpoints = JVMCheckpoints(self._options.checkpoint)
            self._session = ReaderSession(self._client, group, query, self._options, checkpoints)
            weakref.finalize(self, self._session.stop)  # for programs other than Spark, which kills the process
        return self._session


def _counts(places: dict[str, dict[str, Any]], ranges: dict[str, tuple[int | None, int]]) -> dict[str, int | None]:
    """Count the messages of reservations, by queue; None if the broker does not know the reservations.

    Args:
        places: the group's positions, by queue.
        ranges: by queue, the number of the reservation before the first one, and of the last one.
    """
    counts: dict[str, int | None] = {}
    for queue, (after, upto) in ranges.items():
        sizes = {int(number): size for number, size in places.get(queue, {}).get("reservations", {}).items()}
        found = [size for number, size in sizes.items() if (after or 0) < number <= upto]
        counts[queue] = sum(found) if upto in sizes else None
    return counts


def _owned(batch: pa.RecordBatch, epochs: dict[str, int]) -> pa.RecordBatch:
    """Add the column of owner epochs, null for queues without one."""
    queues = batch.column("queue").dictionary_encode()
    by_queue = np.array([epochs.get(queue, 0) for queue in queues.dictionary.to_pylist()], np.int64)
    numbers = by_queue[queues.indices.to_numpy()]
    known = np.packbits(numbers != 0, bitorder="little")
    column = pa.Array.from_buffers(pa.int64(), len(batch), [pa.py_buffer(known), pa.py_buffer(numbers)])
    return batch.append_column(OWNER_EPOCH, column)
