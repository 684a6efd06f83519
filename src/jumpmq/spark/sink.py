"""The sink: publishes the rows of a DataFrame, in the order of each partition, and waits for confirmation.

How it works. A task sends its rows in chunks. A chunk is one request, answered when the messages are on disk. With each
chunk the broker stores, durably, the progress of the writer's partition: the batch, the number of published rows, and
their digest. A repeated task first requests the progress, and skips the published rows.

A *writer* publishes batches. A streaming query is one writer for as long as its checkpoint exists. A batch job, or a
write within ``foreachBatch``, is one writer for all writes with the same ``txnAppId``, and ``txnVersion`` is the number
of the batch; without these options, each job is a writer of its own.

Spark may repeat a batch, perhaps on another number of cores, and then divide its rows into other partitions. So each
*attempt* first begins the batch at the broker, which then refuses rows of earlier attempts. The tasks of an attempt
publish no row until they have found all rows published by earlier attempts again, in the same order, at the beginning
of the same partitions. The other rows are then exactly the unpublished ones. If the rows are not found, the attempt
fails.

Spark may run a task twice at once (speculation), and the two tasks overtake each other. A task whose chunk does not
continue the published rows requests the progress of the other task, finds the same rows among its own, and continues
after them.
"""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jumpmq.spark.client import Client
from jumpmq.spark.errors import BrokerAway, JumpMQError, TooLarge
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.nothing_read import warn
from jumpmq.spark.options import (
    BROKER_OPTIONS,
    MAX_NAME,
    URL_MISSING,
    BrokerAddress,
    Reads,
    broker_of,
    known,
    nonempty_text,
    one_of,
    text,
    truth,
    whole,
)
from jumpmq.spark.publishable import check_publishable, publishable

MAX_VERSION = (1 << 53) - 1
"""Highest number of a batch, as JSON has no exact integers beyond."""

CHUNK_ROWS = 20_000
CHUNK_OCTETS = 8 << 20
"""Maximum size of a chunk, in rows and octets: the broker publishes a chunk at once.

20,000 rows are two of Spark's record batches, by Spark's default, and the maximum that the broker takes at once for
queues that may refuse messages. A request costs the broker as much as 3,000 rows.
"""

OTHER_ROWS = (
    "a batch was repeated with other rows, in another order, or in other partitions than the published rows; no row "
    "was published twice: run the batch on as many cores as before, and sort its rows within partitions"
)

ONE_NODE = (
    "option 'url' names several nodes: one node keeps the progress of a write, so that a retry at another node would "
    "publish rows again; give one URL for writes, always the same"
)

PASSED_OVER = (
    "a version is published once, so that no row of this write was published; give other rows another 'txnVersion'"
)

FENCED = "another attempt at the same batch has begun"

LOOK = 0.1
"""Seconds between two checks for published rows found by parallel tasks."""

REFUSED = "a queue that is full refuses messages, by its x-overflow: make room, and write again"


@dataclass(frozen=True)
class SinkOptions:
    """Options set by ``.option(...)`` on a write; names are not case-sensitive.

    Attributes:
        broker: the broker to publish to.
        exchange: publish to this exchange, with the column ``routing_key``; "" for the default exchange.
        queue: target queue. Give ``queue``, ``exchange``, or a column of one of these names.
        on_unroutable: ``onUnroutable``: treatment of rows that reach no queue, ``fail`` (the default) or ``drop``.
        undelivered_to: ``deadLetterExchange``: the exchange for rows that reach no queue, and for rows that a full
            queue refuses; None to fail on such rows.
        persistent: ``deliveryMode``: delivery mode of rows without one, ``persistent`` (the default) or ``transient``.
            The option's earlier name is ``persistent``, with ``true`` or ``false``.
        app, version: ``txnAppId`` and ``txnVersion``: a batch with the same pair is published once. A batch with a
            lower version is refused, and so is a batch with the same pair from another streaming query.
    """

    broker: BrokerAddress
    exchange: str | None = None
    queue: str | None = None
    on_unroutable: str = "fail"
    undelivered_to: str | None = None
    persistent: bool = True
    app: str | None = None
    version: int | None = None

    @property
    def names(self) -> tuple[bool, bool]:
        """Defaults for rows without an exchange or queue: True for a default exchange, True for a default queue."""
        return self.exchange is not None, self.queue is not None

    @property
    def target(self) -> str:
        """A hash of the default exchange or queue; empty if the rows name their targets."""
        if self.exchange is None and self.queue is None:
            return ""
        return hashlib.sha256(repr((self.exchange, self.queue)).encode()).hexdigest()[:16]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Validate the options of a write.

        Raises:
            JumpMQError: an option is missing, unknown, or has an invalid value.
        """
        ignored = {"path", "checkpointlocation", "queryname"}  # options of Spark itself
        given = known({name: value for name, value in options.items() if name.lower() not in ignored}, SINK_OPTIONS)
        if "url" not in given:
            raise JumpMQError(URL_MISSING)
        if "exchange" in given and "queue" in given:
            raise JumpMQError("give either option 'exchange' or option 'queue'")
        if ("app" in given) != ("version" in given):
            raise JumpMQError("give both options 'txnAppId' and 'txnVersion', or neither")
        if {"deliverymode", "persistent"} <= {name.lower() for name in options}:
            raise JumpMQError("give either option 'deliveryMode' or option 'persistent', which is its earlier name")
        if "on_unroutable" in given and "undelivered_to" in given:
            raise JumpMQError("give either option 'onUnroutable' or option 'deadLetterExchange'")
        broker = broker_of(given)
        if len(broker.urls) > 1:
            raise JumpMQError(ONE_NODE)
        return cls(broker=broker, **given)


def _delivery_mode(name: str, value: str) -> bool:
    """Parse a delivery mode, a word or AMQP's number; return True for persistent."""
    return one_of("persistent", "transient", "2", "1")(name, value) in ("persistent", "2")


def _short(parse: Callable[[str, str], str]) -> Callable[[str, str], str]:
    """Return a parser that refuses texts longer than an AMQP name."""

    def read(name: str, value: str) -> str:
        if len(value.encode(errors="surrogatepass")) > MAX_NAME:
            raise JumpMQError(f"option '{name}' has at most {MAX_NAME} octets; '{value[:40]}...' has more")
        return parse(name, value)

    return read


def _version(name: str, value: str) -> int:
    """Parse the number of a batch."""
    if (found := whole(name, value)) > MAX_VERSION:
        raise JumpMQError(f"option '{name}' is at most {MAX_VERSION}, not {value}")
    return found


SINK_OPTIONS: Reads = BROKER_OPTIONS | {
    "exchange": ("exchange", _short(text)),
    "queue": ("queue", _short(nonempty_text)),
    "onunroutable": ("on_unroutable", one_of("fail", "drop")),
    "deadletterexchange": ("undelivered_to", text),
    "deliverymode": ("persistent", _delivery_mode),
    "persistent": ("persistent", truth),
    "txnappid": ("app", _short(nonempty_text)),
    "txnversion": ("version", _version),
}


Reached = Callable[[], Mapping[str, Any] | None]
"""Returns the progress of this attempt at a partition, in any task: ``rows`` and ``digest``; None before the start."""


@dataclass
class Written(WriterCommitMessage):
    """Result of a task: numbers of rows.

    Attributes:
        published: number of published rows.
        dropped: number of rows that reached no queue, and were dropped.
        undelivered: number of rows published to the exchange for undelivered messages instead.
        writer: name of the writer.
        passed_over: number of skipped rows, as the batch was complete before.
        known: number of rows of the complete batch; None if the batch is new, or the number unknown.
        repeats: True within a streaming query, which may repeat a batch.
    """

    published: int = 0
    dropped: int = 0
    undelivered: int = 0
    writer: str = ""
    passed_over: int = 0
    known: int | None = None
    repeats: bool = False


class MessageWriter:
    """Base of the batch and the stream writer.

    Attributes:
        chunk_rows: maximum number of rows published at once.
    """

    chunk_rows = CHUNK_ROWS

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_publishable(schema, *options.names)
        self._options = options
        self._client = Client(options.broker)
        if options.exchange is not None:
            self._client.require_broker()
            self._client.exchange(options.exchange)
        elif options.queue is not None:
            self._client.require_broker()
            self._client.require_queue(options.queue)
        if options.undelivered_to is not None:
            self._client.require_broker()
            self._client.exchange(options.undelivered_to)

    def _publish(self, batches: Iterator[pa.RecordBatch], writer: str, part: str) -> Written:
        """Publish a partition's rows, except those published by an earlier attempt of the task.

        Args:
            writer: name of the writer; the broker refuses rows of a writer that is not open.
            part: number of the partition.

        Raises:
            JumpMQError: a row cannot be published; the other rows of its chunk and later rows are not published either.
        """
        client = Client(self._options.broker, met=True)
        rows = UnpublishedRows(self._publishable(batches), client.writer(writer, part), self.chunk_rows)
        query = {"writer": writer, "part": part, "batch": 0, "opened": "true"}
        return self._publish_rest(client, rows, query, Written(writer=writer), lambda: client.writer(writer, part))

    def _publish_once(
        self, batches: Iterator[pa.RecordBatch], writer: str, batch: int, part: str, attempt: str, origin: str = ""
    ) -> Written:
        """Publish a partition's rows of a repeatable batch, except published ones.

        Args:
            attempt: id of the attempt, the same for all tasks of the attempt.
            origin: id of the streaming query that numbers the batches, a space, and the target; empty if the query's id
                is part of the writer's name.

        Raises:
            JumpMQError: a row cannot be published. Or, with no further row published: the rows or their partitions
                differ from an earlier attempt, or another attempt has begun.
        """
        client, written = Client(self._options.broker, met=True), Written(writer=writer)
        begun = client.begin_batch(writer, batch, attempt, origin)
        # Spark repeats a micro-batch if the driver ended between the sink's commit and Spark's own.
        if begun["complete"]:
            written.known = begun.get("rows") if origin else None
            if written.known is not None:
                written.passed_over = sum(len(rows) for rows in batches)
            return written
        earlier = [name for name, place in begun["parts"].items() if place["attempt"] != attempt]
        rows = UnpublishedRows(self._publishable(batches), begun["parts"].get(part), self.chunk_rows)
        query = {"writer": writer, "part": part, "batch": batch, "attempt": attempt}

        def reached() -> Mapping[str, Any] | None:
            found = client.batch(writer, batch)["parts"].get(part)
            return found if found is not None and found["attempt"] == attempt else None

        # The rows up to here equal those of an earlier attempt. A chunk of no rows reports that under this attempt.
        if part in earlier:
            place = {"first": rows.digest.rows, "rows": rows.digest.rows, "digest": rows.digest.hexdigest()}
            nothing = ipc_stream(pa.table({"body": pa.array([], pa.binary())}))
            try:
                client.publish(nothing, self._query() | query | place)
            except BrokerAway:
                raise
            except JumpMQError:
                if reached() is None:  # else reported by a task of this attempt
                    raise
        if rows.ended:
            return written
        # Other rows may have moved between partitions: nothing new is published until all published rows are found.
        if earlier:
            self._wait_until_found(client, writer, batch, attempt, earlier)
        return self._publish_rest(client, rows, query, written, reached)

    def _wait_until_found(self, client: Client, writer: str, batch: int, attempt: str, earlier: list[str]) -> None:
        """Wait until the tasks of an attempt have found all rows published by earlier attempts.

        Raises:
            JumpMQError: they have not within ``brokerRetrySeconds``, or another attempt has begun.
        """
        until = time.monotonic() + self._options.broker.retry_seconds
        while True:
            known = client.batch(writer, batch)
            if known["attempt"] != attempt:
                raise JumpMQError(FENCED)
            if all(known["parts"][part]["attempt"] == attempt for part in earlier):
                return
            if time.monotonic() > until:
                raise JumpMQError(OTHER_ROWS)
            time.sleep(LOOK)

    def _publishable(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (publishable(batch, *self._options.names) for batch in batches)

    def _publish_rest(
        self, client: Client, rows: UnpublishedRows, query: dict[str, Any], written: Written, reached: Reached
    ) -> Written:
        query = self._query() | query
        for table in rows.chunks():
            try:
                rows.digest = self._publish_chunk(client, table, rows.digest, query, written)
            except BrokerAway:
                raise
            except JumpMQError:
                place = reached()
                # Speculative execution: another task of the same partition may have published this chunk meanwhile.
                if place is None or place["rows"] <= rows.digest.rows:
                    raise
                rows.skip_published(place, table)
        return written

    def _publish_chunk(
        self, client: Client, table: pa.Table, before: RowsDigest, query: dict[str, Any], written: Written
    ) -> RowsDigest:
        """Publish a chunk; halve a chunk that is too large for a request, or for a queue's room.

        The broker takes a chunk as a whole or not at all, so that a retry continues with exactly the refused row.

        Args:
            before: digest of the published rows.
            written: result of the task, updated.

        Returns:
            Digest of the published rows, including this chunk.
        """
        after = before.copy()
        after.update(table)
        place = {"first": before.rows, "rows": after.rows, "digest": after.hexdigest()}
        try:
            answer = client.publish(ipc_stream(table), query | place)
            if not answer["refused"]:
                written.published += answer["published"]
                written.dropped += answer["unroutable"]
                written.undelivered += answer["undelivered"]
                return after
            if len(table) == 1:
                raise JumpMQError(REFUSED)
        except TooLarge:
            if len(table) == 1:
                raise
        # One half after the other: the digests of the rows are in the order of the partition.
        middle = len(table) // 2
        half = self._publish_chunk(client, table.slice(0, middle), before, query, written)
        return self._publish_chunk(client, table.slice(middle), half, query, written)

    def _query(self) -> dict[str, Any]:
        """Return the query parameters common to all requests."""
        queue = self._options.queue
        target = {"exchange": self._options.exchange or ""} if queue is None else {"queue": queue}
        persistent = str(self._options.persistent).lower()
        instead = self._options.undelivered_to
        unroutable = {"unroutable": self._options.on_unroutable} if instead is None else {"undelivered-to": instead}
        return target | unroutable | {"persistent": persistent}


class BatchWriter(MessageWriter, DataSourceArrowWriter):
    """Publishes a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._writer = options.app or f"spark-{uuid.uuid4().hex}"
        self._batch = options.version or 0
        self._attempt = uuid.uuid4().hex
        if options.app is None:  # a writer of this job only: a task that outlives the job is refused
            self._client.open_writer(self._writer)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        part = str(context.partitionId())
        if self._options.app is None:
            return self._publish(iterator, self._writer, part)
        query = context.getLocalProperty("sql.streaming.queryId")  # within foreachBatch
        origin = f"{query or ''} {self._options.target}"
        written = self._publish_once(iterator, self._writer, self._batch, part, self._attempt, origin)
        written.repeats = query is not None
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tell(messages)
        self._require_same_rows([one for one in messages if isinstance(one, Written)])
        # Only after all tasks have succeeded: a complete batch is skipped as a whole when it is repeated.
        if self._options.app is not None:
            self._client.complete_batch(self._writer, self._batch)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._forget()

    def _require_same_rows(self, written: list[Written]) -> None:
        """Refuse a complete batch that is repeated with another number of rows.

        Within a streaming query print a warning instead, as the query would repeat the batch forever.

        Raises:
            JumpMQError: the number of rows differs.
        """
        known = next((one.known for one in written if one.known is not None), None)
        found = sum(one.passed_over for one in written)
        if known is None or found == known:
            return
        said = f"version {self._batch} of '{self._writer}' was published with {known} rows, and this write has {found}"
        if any(one.repeats for one in written):
            warn(f"{said}: {PASSED_OVER}")
        else:
            raise JumpMQError(f"{said}: {PASSED_OVER}")

    def _forget(self) -> None:
        if self._options.app is None:
            self._client.forget_writer(self._writer)


class StreamWriter(MessageWriter, DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a streaming query, exactly once; Spark creates one writer per attempt."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._attempt = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise JumpMQError("Spark does not say which query and micro-batch this is")
        return self._publish_once(iterator, f"query-{query}", int(batch), str(context.partitionId()), self._attempt)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        tell(messages)
        for writer in {one.writer for one in messages if isinstance(one, Written)}:
            self._client.complete_batch(writer, batchId)


def tell(messages: list[WriterCommitMessage | None]) -> None:
    """Print the numbers of dropped and of undelivered messages on stderr, unless 0."""
    written = [one for one in messages if isinstance(one, Written)]
    if dropped := sum(one.dropped for one in written):
        print(f"jumpmq: {dropped} messages reached no queue and were dropped", file=sys.stderr)
    if undelivered := sum(one.undelivered for one in written):
        print(f"jumpmq: {undelivered} messages went to the exchange for undelivered messages", file=sys.stderr)


class RowsDigest:
    """A digest of rows, independent of batch boundaries.

    Attributes:
        rows: number of rows.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, tuple[hashlib._Hash, hashlib._Hash]] = {}

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are of text or octets."""
        self.rows += len(batch)
        for name in batch.schema.names:
            lengths, octets = self._columns.setdefault(name, (hashlib.sha256(), hashlib.sha256()))
            found = batch.column(name)
            for column in found.chunks if isinstance(found, pa.ChunkedArray) else [found]:
                # Lengths apart from octets: otherwise "ab", "c" and "a", "bc" would have equal digests.
                lengths.update(_lengths(column))
                values = column.buffers()[2]
                if values is not None:
                    first, last = _bounds(column)
                    octets.update(memoryview(values)[first:last])

    def copy(self) -> RowsDigest:
        """Return an independent copy of the digest."""
        found = RowsDigest()
        found.rows = self.rows
        found._columns = {name: (one.copy(), two.copy()) for name, (one, two) in self._columns.items()}
        return found

    def hexdigest(self) -> str:
        """Return the digest of all rows added so far."""
        parts = (part.digest() for name in sorted(self._columns) for part in self._columns[name])
        return hashlib.sha256(b"".join(parts)).hexdigest()


class UnpublishedRows:
    """The unpublished rows of a partition, after the published ones.

    Args:
        place: progress of an earlier attempt; without an earlier attempt None, or a progress of 0 rows.
        chunk_rows: maximum number of rows of a chunk.

    Attributes:
        digest: digest of the published rows.
        ended: True if all rows were published before.

    Raises:
        JumpMQError: the rows differ from the published rows.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], place: Mapping[str, Any] | None, chunk_rows: int) -> None:
        self.digest = RowsDigest()
        self._chunk_rows = chunk_rows
        self._chunks = _chunks(_behind(batches, place, self.digest), chunk_rows)
        self._first = next(self._chunks, None)
        self.ended = self._first is None

    def chunks(self) -> Iterator[pa.Table]:
        """Yield the rows in chunks of the size that the broker publishes at once."""
        if self._first is not None:
            yield self._first
        while (chunk := next(self._chunks, None)) is not None:
            yield chunk

    def skip_published(self, place: Mapping[str, Any], chunk: pa.Table) -> None:
        """Skip rows published meanwhile by a parallel task.

        Args:
            place: progress of the parallel task.
            chunk: the last chunk from :meth:`chunks`, not yet published.

        Raises:
            JumpMQError: the rows differ from the published rows.
        """
        batches = chain(chunk.to_batches(), (batch for table in self._chunks for batch in table.to_batches()))
        self._chunks = _chunks(_behind(batches, place, self.digest), self._chunk_rows)


def _lengths(column: pa.Array) -> bytes:
    """Return the lengths of a column's values as 32-bit integers, -1 for null, in octets.

    Computed with numpy: pyarrow's computations with Python numbers would import pandas.
    """
    count = len(column)
    if not count:
        return b""
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32, count + 1, 4 * column.offset))
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
        lengths[bits[column.offset : column.offset + count] == 0] = -1
    return lengths.tobytes()


def _bounds(column: pa.Array) -> tuple[int, int]:
    """Return start and end of a column's values in its buffer; the column is of text or octets."""
    offsets = pa.Array.from_buffers(pa.int32(), column.offset + len(column) + 1, [None, column.buffers()[1]])
    return offsets[column.offset].as_py(), offsets[-1].as_py()


def _behind(
    batches: Iterator[pa.RecordBatch], place: Mapping[str, Any] | None, digest: RowsDigest
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the published rows.

    Args:
        place: progress of an earlier attempt; None without one.
        digest: updated with the skipped rows.

    Raises:
        JumpMQError: the rows differ from the published rows.
    """
    published = place["rows"] if place is not None else 0
    for batch in batches:
        known = min(len(batch), published - digest.rows) if digest.rows < published else 0
        if known:
            digest.update(batch.slice(0, known))
            if digest.rows == published and place is not None and digest.hexdigest() != place["digest"]:
                raise JumpMQError(OTHER_ROWS)
        if known < len(batch):
            yield batch.slice(known)
    if digest.rows < published:
        raise JumpMQError(OTHER_ROWS)


def _chunks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Yield the rows in chunks of the size that the broker publishes at once."""
    waiting: list[pa.RecordBatch] = []
    rows = octets = 0
    for batch in batches:
        for part in _cut(batch, most):
            size = part.nbytes
            if waiting and (rows + len(part) > most or octets + size > CHUNK_OCTETS):
                yield pa.Table.from_batches(waiting)
                waiting, rows, octets = [], 0, 0
            waiting.append(part)
            rows += len(part)
            octets += size
    if waiting:
        yield pa.Table.from_batches(waiting)


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts no larger than a chunk; a larger row is a part of its own."""
    if len(batch) > 1 and (len(batch) > most or batch.nbytes > CHUNK_OCTETS):
        middle = most if len(batch) > most else len(batch) // 2
        yield from _cut(batch.slice(0, middle), most)
        yield from _cut(batch.slice(middle), most)
    else:
        yield batch
