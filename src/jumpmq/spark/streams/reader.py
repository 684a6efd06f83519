"""Streaming reader of streams: micro-batches are ranges of offsets, and the checkpoint is the query's only state.

How it works. Spark's *offset* is ``{"broker": IDENTITY, "source": TEXT, "streams": {NAME: {"id": ID, "from": OFFSET,
"offset": OFFSET, "mark": NUMBER}, ...}, "cut": {...}}``. It describes the whole micro-batch that ends there: the
messages of each stream from ``from`` to before ``offset``, and their division into partitions (``cut``). So a repeated
micro-batch has the same rows, even the first one, of which Spark logs the end but not the start.

``id`` is the stream's identity, to detect a stream that was deleted and declared again by the same name. AMQP has no
identities: over AMQP, such a stream is detected if it ends before the last read offset. ``"ahead": true`` permits such
an end, for a query that starts after the end of the stream. ``mark`` is the broker's fingerprint of the message before
``offset``, to detect a data directory restored from a backup, which gives the same offsets to other messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jumpmq.spark.clients import client_of
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.lag import behind
from jumpmq.spark.minimum import Minimum
from jumpmq.spark.nothing_read import Warnings, beyond_the_end, require_past, without_queues
from jumpmq.spark.options import RESERVED, SourceOptions
from jumpmq.spark.origin import Origin
from jumpmq.spark.partitions import Division
from jumpmq.spark.patience import Patience
from jumpmq.spark.streams.batch import starting
from jumpmq.spark.streams.kinds import origin_of, queue_names, require_only_streams, require_same_origin
from jumpmq.spark.streams.places import LATEST
from jumpmq.spark.streams.ranges import GO_ON, OffsetRanges, partitions_of, read_ranges

IDLE_PAUSE = 0.05
"""Seconds to wait before an answer without new messages, because without a trigger, Spark asks again at once."""

CATCHES_UP = 5.0
"""Seconds to wait for a stream that ends before the last read offset, as at a lagging replica of RabbitMQ."""

RESTORED = (
    "the broker's data directory was restored from an older backup. Give the query a new checkpoint and "
    "'startingOffsets', or set option 'failOnDataLoss' to false to go on at that offset, or at the end"
)

Offset = dict[str, Any]
Found = dict[str, Any]
"""The broker's description of a stream."""


class OffsetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams in ranges of offsets."""

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int | None) -> None:
        options.refuse((*RESERVED, "maxBytesPerTrigger"), "for queues that are read by reservations, not for streams")
        options.refuse(("endingOffsets",), "for tables: a streaming query has no end")
        self._options = options
        self._schema = schema
        self._cut = Division.of(options, parallelism)
        self._client = client_of(options.broker, met=True)
        self._initial: Offset | None = None
        self._ends: dict[str, int] | None = None
        self._minimum = Minimum(options)
        self._waiting: dict[str, int] = {}
        self._granted: dict[str, int] = {}
        self._warnings = Warnings()

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        if self._initial is None:
            place = self._options.starting_offsets or LATEST
            require_past(place.timestamp)
            streams, answer = {}, self._ask(*self._subject(), timestamp=place.timestamp)
            place.require_read(answer)
            for name, found in sorted(answer.items()):
                first = starting(name, place.offset_in(name, found), found, self._options)
                streams[name] = {"id": found["id"], "from": first, "offset": first} | _ahead(first, found)
            self._initial = origin_of(self._options, self._client) | {"streams": streams}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the ends of the streams: later messages belong to the next query."""
        self._ends = {name: found["last_seq"] + 1 for name, found in self._ask(*self._subject()).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._require_own(start)
        done: dict[str, dict[str, int]] = start["streams"]
        exchange, names = self._subject() if self._ends is None else (None, list(self._ends))
        found = self._asked(exchange, [*names, *done], done)
        begins = {name: self._begin(name, at, done.get(name)) for name, at in found.items()}
        waiting = {name: max(0, self._end(name, at) - begins[name]) for name, at in found.items()}
        self._warnings.hold(beyond_the_end(begins, found) if found else [without_queues(self._options)])
        if self._ends is None and self._minimum.waits(sum(waiting.values())):
            self._waiting, self._granted = waiting, {}
            time.sleep(IDLE_PAUSE)
            return start
        granted = _shared(waiting, limit.max_rows if isinstance(limit, ReadMaxRows) else sum(waiting.values()))
        self._waiting = {name: waiting[name] - granted[name] for name in waiting}
        self._granted = {name: count for name, count in granted.items() if count}
        streams = {
            name: {"id": at["id"], "from": begins[name], "offset": begins[name] + granted[name]}
            | (_ahead(begins[name], at) if done.get(name, {}).get("ahead") else {})
            for name, at in sorted(found.items())
            if name in done or granted[name]
        }
        if _places(streams) == _places(done):
            time.sleep(IDLE_PAUSE if self._ends is None else 0)
            return start
        self._mark(streams)
        return start | {"streams": streams, "cut": self._cut.noted()}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the messages in the streams after the last micro-batch."""
        if not self._waiting and not self._warnings.now:
            return None
        shown = {"ready": self._waiting, "total": sum(self._waiting.values()), "rows": self._granted}
        warnings = {"warnings": self._warnings.now} if self._warnings.now else {}
        return shown | (behind(self._waiting, None) if self._waiting else {}) | warnings

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._require_own(end)
        batch = {name: one for name, one in end["streams"].items() if one["from"] < one["offset"]}
        if start == end or not batch:
            return []
        found = self._asked(None, list(batch), batch)
        ranges = {}
        for name, one in batch.items():
            why = self._why_other(name, found[name], one) if name in found else _declared_anew(name)
            if why is None:
                ranges[name] = starting(name, one["from"], found[name], self._options), one["offset"]
            elif self._options.fail_on_data_loss:
                raise JumpMQError(why)
        return [*partitions_of(ranges, Division.noted_in(end) or self._cut, Origin.of(self._client.identity, batch))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRanges)
        return read_ranges(partition, self._options, self._schema)

    def _subject(self) -> tuple[str | None, list[str]]:
        """Return the source: an exchange, or named streams."""
        return self._options.exchange, queue_names(self._client, self._options)

    def _ask(
        self,
        exchange: str | None,
        names: list[str],
        *,
        timestamp: float | None = None,
        missing: bool = False,
        marks: Mapping[str, int] | None = None,
    ) -> dict[str, Found]:
        """Request the descriptions of an exchange's streams and of named streams; None for ``missing`` streams."""
        found = self._client.ranges(exchange, names, timestamp=timestamp, missing=missing, marks=marks)
        require_only_streams(found)
        return found

    def _asked(self, exchange: str | None, names: list[str], done: dict[str, Any]) -> dict[str, Found]:
        """Request the descriptions of streams, repeatedly for some seconds if a stream ends before the last read
        offset.
        """
        patience, marks = Patience(CATCHES_UP), {name: one["offset"] - 1 for name, one in done.items() if "mark" in one}
        while True:
            found = self._there(self._ask(exchange, names, missing=True, marks=marks), done)
            short = next((name for name, at in found.items() if _is_short(at, done.get(name))), None)
            if short is None:
                return found
            try:
                patience.pause(JumpMQError(short))
            except JumpMQError:
                return found

    def _there(self, found: dict[str, Found], done: dict[str, Any]) -> dict[str, Found]:
        """Return the descriptions without deleted streams.

        Raises:
            JumpMQError: a stream that the query has read was deleted, and ``failOnDataLoss`` is not false.
        """
        gone = [name for name, at in found.items() if at is None and name in done]
        if gone and self._options.fail_on_data_loss:
            raise JumpMQError(f"stream '{gone[0]}' was deleted while the query used it; {GO_ON}")
        return {name: at for name, at in found.items() if at is not None}

    def _begin(self, name: str, found: Found, done: dict[str, int] | None) -> int:
        """Return the first offset that the query has not read; the lowest offset of a new stream."""
        if done is None:
            return int(found["first_seq"])
        why = self._why_other(name, found, done)
        if why is None:
            return starting(name, done["offset"], found, self._options)
        if self._options.fail_on_data_loss:
            raise JumpMQError(why)
        if self._is_another(found, done):
            return int(found["first_seq"])
        return starting(name, min(done["offset"], int(found["last_seq"]) + 1), found, self._options)

    def _is_another(self, found: Found, done: dict[str, int]) -> bool:
        """Return True if a stream was deleted and declared again since the last read."""
        return done["id"] != found["id"] or (self._options.broker.speaks_amqp and _is_short(found, done))

    def _why_other(self, name: str, found: Found, done: dict[str, int]) -> str | None:
        """Return the error's text if the stream's messages are not those that the query has read; None if they are."""
        if self._is_another(found, done):
            return _declared_anew(name)
        offset, mark = done["offset"], found.get("mark")
        if _is_short(found, done):
            end = found["last_seq"]
            return f"stream '{name}' ends with offset {end}, before the query's next offset {offset}: {RESTORED}"
        if mark is not None and done.get("mark") not in (None, mark):
            return f"stream '{name}' has other messages before offset {offset} than the query has read: {RESTORED}"
        return None

    def _mark(self, streams: dict[str, dict[str, Any]]) -> None:
        """Note the fingerprints of the last messages read."""
        if self._options.broker.speaks_amqp:
            return
        last = {name: one["offset"] - 1 for name, one in streams.items() if one["offset"]}
        for name, found in self._ask(None, list(last), missing=True, marks=last).items():
            if found is not None and found.get("mark") is not None:
                streams[name]["mark"] = found["mark"]

    def _end(self, name: str, found: Found) -> int:
        end = int(found["last_seq"]) + 1
        return end if self._ends is None else min(end, self._ends.get(name, end))

    def _require_own(self, offset: Offset) -> None:
        """Refuse the checkpoint of a different query."""
        if not isinstance(offset, dict) or "streams" not in offset:
            raise JumpMQError("the query's checkpoint is not of streams of JumpMQ: give it a checkpoint of its own")
        require_same_origin(offset, self._options, self._client)


def _ahead(offset: int, found: Found) -> dict[str, bool]:
    return {"ahead": True} if offset > found["last_seq"] + 1 else {}


def _is_short(found: Found, done: dict[str, Any] | None) -> bool:
    """Return True if a stream ends before the last read offset."""
    return done is not None and not done.get("ahead") and bool(done["offset"] > found["last_seq"] + 1)


def _places(streams: dict[str, dict[str, int]]) -> dict[str, tuple[int, int]]:
    return {name: (one["id"], one["offset"]) for name, one in streams.items()}


def _declared_anew(name: str) -> str:
    return f"stream '{name}' was deleted and declared again; {GO_ON}"


def _shared(waiting: dict[str, int], most: int) -> dict[str, int]:
    """Return the number of messages per stream in a micro-batch: all, or ``most`` in proportion to the waiting ones."""
    total = sum(waiting.values())
    if total <= most:
        return waiting
    shares, before, given = {}, 0, 0
    for name, count in waiting.items():
        before += count
        shares[name] = before * most // total - given
        given += shares[name]
    return shares
