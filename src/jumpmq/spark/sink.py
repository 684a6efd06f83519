"""The sink: rows of a DataFrame are published, in the order of their partitions, and confirmed.

How it works. A task sends its rows in chunks, each a request that the broker answers when the messages are on disk.
With each the broker remembers, durably, how many rows it has got of which batch of a writer's partition, and their
digest. A task that is tried again asks first, and leaves out what is published.

A streaming query is one writer for as long as its checkpoint lives; a batch job, or what runs in ``foreachBatch``, is
one if it is given a ``txnAppId`` and a ``txnVersion``. A micro-batch of these may be repeated, on other cores perhaps,
and its rows be divided into other partitions then. So each *attempt* at a batch begins it at the broker, which refuses
earlier attempts from then on. Its tasks publish nothing new before all that earlier attempts have published was found
again, in the same order, at the beginning of the same partitions: what is left is then what is not published. If it
is not found, the attempt fails.

Spark may run a task twice at once (speculation). The two overtake each other: one whose chunk does not follow what is
published asks how far the other has got, and goes on behind that once it has found the same rows.
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
    one_of,
    some_text,
    text,
    truth,
    whole,
)
from jumpmq.spark.publishable import check_publishable, publishable

MAX_VERSION = (1 << 53) - 1
"""Highest number of a batch: JSON has no exact numbers beyond."""

CHUNK_ROWS = 20_000
CHUNK_OCTETS = 8 << 20
"""Maximum size of a chunk, in rows and octets: the broker publishes a chunk at once.

So many rows are two of Spark's record batches, where it is not told otherwise, and as many as the broker takes at once
for queues that may refuse some. A request costs the broker as much as 3,000 rows.
"""

OTHER_ROWS = (
    "a batch was tried again with other rows, in another order, or in other partitions, than those that are published "
    "already; nothing was published twice: run it on as many cores as before, and sort it within its partitions"
)

ONE_NODE = (
    "option 'url' names several nodes: what is published is remembered at one, so that a retry at another would "
    "publish it again; give one URL where rows are written, always the same"
)

PASSED_OVER = (
    "a version is published once, so that no row of this write was published; give other rows another 'txnVersion'"
)

FENCED = "another attempt at the same batch has begun"

LOOK = 0.1
"""Seconds between two checks for published rows found by parallel tasks."""

REFUSED = "a queue that is full refuses messages, as its x-overflow says: make room, and write again"


@dataclass(frozen=True)
class SinkOptions:
    """Options set by ``.option(...)`` on a write; names are not case-sensitive.

    Attributes:
        broker: where to.
        exchange: publish to this exchange, with the column ``routing_key``; "" for the default exchange.
        queue: target queue. Give ``queue``, ``exchange``, or a column of one of these names.
        on_unroutable: ``onUnroutable``, ``fail`` (unless given) or ``drop``: what becomes of rows that reach no queue.
        undelivered_to: ``deadLetterExchange``: the exchange that gets rows that reach no queue, and those that a full
            queue refuses; None where these fail.
        persistent: ``deliveryMode``, ``persistent`` (unless given) or ``transient``: whether rows that have no delivery
            mode are persistent. An earlier name is ``persistent``, ``true`` or ``false``.
        app, version: ``txnAppId`` and ``txnVersion``: a batch of the same two is published once, and one with a lower
            version, or of another streaming query with the same, is refused.
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
        """True for a default exchange, and for a default queue of rows without one."""
        return self.exchange is not None, self.queue is not None

    @property
    def target(self) -> str:
        """A short name of the exchange or queue that is the target of rows without one; empty if the rows name it."""
        if self.exchange is None and self.queue is None:
            return ""
        return hashlib.sha256(repr((self.exchange, self.queue)).encode()).hexdigest()[:16]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Check the options of a write.

        Raises:
            JumpMQError: one is missing, unknown, or makes no sense.
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
    """Return a parser that refuses more octets than a name has."""

    def read(name: str, value: str) -> str:
        if len(value.encode(errors="surrogatepass")) > MAX_NAME:
            raise JumpMQError(f"option '{name}' has at most {MAX_NAME} octets; '{value[:40]}...' has more")
        return parse(name, value)

    return read


def _version(name: str, value: str) -> int:
    """Parse a number of a batch."""
    if (found := whole(name, value)) > MAX_VERSION:
        raise JumpMQError(f"option '{name}' is at most {MAX_VERSION}, not {value}")
    return found


SINK_OPTIONS: Reads = BROKER_OPTIONS | {
    "exchange": ("exchange", _short(text)),
    "queue": ("queue", _short(some_text)),
    "onunroutable": ("on_unroutable", one_of("fail", "drop")),
    "deadletterexchange": ("undelivered_to", text),
    "deliverymode": ("persistent", _delivery_mode),
    "persistent": ("persistent", truth),
    "txnappid": ("app", _short(some_text)),
    "txnversion": ("version", _version),
}


Reached = Callable[[], Mapping[str, Any] | None]
"""Returns the progress of this attempt at a partition, in any task: ``rows`` and ``digest``; None before the start."""


@dataclass
class Written(WriterCommitMessage):
    """Result of a task: published rows.

    Attributes:
        passed_over: rows of a batch that is complete, and so not published again.
        known: rows of that batch; None if the batch is new, or the number unknown.
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
            writer, part: who publishes, and which of its partitions; the writer is open, or nothing is published.

        Raises:
            JumpMQError: a row cannot be published; those of its chunk and later ones are not.
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
            attempt: the same for all tasks that publish the batch together.
            origin: the streaming query that numbers the batches, and after a space the target; empty where the query is
                part of the writer's name.

        Raises:
            JumpMQError: a row cannot be published; or the batch is divided otherwise than before, or another attempt
                has begun: nothing new is published then.
        """
        client, written = Client(self._options.broker, met=True), Written(writer=writer)
        begun = client.begin_batch(writer, batch, attempt, origin)
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
        if earlier:
            self._wait_until_found(client, writer, batch, attempt, earlier)
        return self._publish_rest(client, rows, query, written, reached)

    def _wait_until_found(self, client: Client, writer: str, batch: int, attempt: str, earlier: list[str]) -> None:
        """Wait until the tasks of an attempt have found all rows published by earlier attempts.

        Raises:
            JumpMQError: they do not, or another attempt has begun.
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
                if place is None or place["rows"] <= rows.digest.rows:
                    raise
                rows.go_behind(place, table)
        return written

    def _publish_chunk(
        self, client: Client, table: pa.Table, before: RowsDigest, query: dict[str, Any], written: Written
    ) -> RowsDigest:
        """Publish a chunk, in parts where that is too much at once, or more than a queue has room for.

        The broker takes a chunk as a whole or not at all, so that a retry goes on with the very row that was refused.

        Args:
            before: of the rows that are published.
            written: is added to.

        Returns:
            the digest of all rows that are published now.
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
        if options.app is None:  # known to this job only, and closed when it ends: a task that goes on is refused
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
        if self._options.app is not None:
            self._client.complete_batch(self._writer, self._batch)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._forget()

    def _require_same_rows(self, written: list[Written]) -> None:
        """Refuse a repeated batch with another number of rows; within a streaming query, which would repeat the batch
        for ever, print a warning instead.

        Raises:
            JumpMQError: the batch is complete, and has another number of rows.
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
    """Say on stderr how many messages were dropped, or went to the exchange for such, if any did."""
    written = [one for one in messages if isinstance(one, Written)]
    if dropped := sum(one.dropped for one in written):
        print(f"jumpmq: {dropped} messages reached no queue and were dropped", file=sys.stderr)
    if undelivered := sum(one.undelivered for one in written):
        print(f"jumpmq: {undelivered} messages went to the exchange for undelivered ones", file=sys.stderr)


class RowsDigest:
    """A digest of rows, independent of batch boundaries.

    Attributes:
        rows: how many.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, tuple[hashlib._Hash, hashlib._Hash]] = {}

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows of text or octets."""
        self.rows += len(batch)
        for name in batch.schema.names:
            lengths, octets = self._columns.setdefault(name, (hashlib.sha256(), hashlib.sha256()))
            found = batch.column(name)
            for column in found.chunks if isinstance(found, pa.ChunkedArray) else [found]:
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
        """The digest of all rows so far."""
        parts = (part.digest() for name in sorted(self._columns) for part in self._columns[name])
        return hashlib.sha256(b"".join(parts)).hexdigest()


class UnpublishedRows:
    """The unpublished rows of a partition, after the published ones.

    Args:
        place: how far an earlier attempt has got; None, or one without rows, if there was none.
        chunk_rows: maximum number of rows of a chunk.

    Attributes:
        digest: of the rows that are published.
        ended: True after the last row.

    Raises:
        JumpMQError: the rows are others than those that are published.
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

    def go_behind(self, place: Mapping[str, Any], chunk: pa.Table) -> None:
        """Skip rows published meanwhile by a parallel task.

        Args:
            place: how far it has got.
            chunk: the last given chunk, not yet published.

        Raises:
            JumpMQError: the rows differ from the published rows.
        """
        batches = chain(chunk.to_batches(), (batch for table in self._chunks for batch in table.to_batches()))
        self._chunks = _chunks(_behind(batches, place, self.digest), self._chunk_rows)


def _lengths(column: pa.Array) -> bytes:
    """Return the octets of a column's lengths, as numbers of 32 bits, -1 for null; without the import of pandas, for
    which pyarrow asks where it is given a number of Python's.
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
    """Return start and end of a column's values in the buffer, for text or octets."""
    offsets = pa.Array.from_buffers(pa.int32(), column.offset + len(column) + 1, [None, column.buffers()[1]])
    return offsets[column.offset].as_py(), offsets[-1].as_py()


def _behind(
    batches: Iterator[pa.RecordBatch], place: Mapping[str, Any] | None, digest: RowsDigest
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the published rows.

    Args:
        place: how far an earlier attempt has got; None if there was none.
        digest: is given the rows that are left out.

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
    """A batch in parts that are no larger than a chunk, as far as rows can be parted."""
    if len(batch) > 1 and (len(batch) > most or batch.nbytes > CHUNK_OCTETS):
        middle = most if len(batch) > most else len(batch) // 2
        yield from _cut(batch.slice(0, middle), most)
        yield from _cut(batch.slice(middle), most)
    else:
        yield batch
