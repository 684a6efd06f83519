"""Publishers and readers for tests of streams, with and without Spark."""

from __future__ import annotations

import json
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.spark.sources import Managed

from jumpmq.spark import SCHEMA, JumpMQDataSource

STREAM = {"x-queue-type": "stream"}
SHORT = STREAM | {"x-stream-max-segment-size-bytes": 1000, "x-max-length-bytes": 3000}
"""Arguments of a stream that keeps a few messages of 800 octets."""


def fill(channel: BlockingChannel, stream: str, count: int, *, start: int = 0, size: int = 4) -> list[bytes]:
    """Publish numbered messages to a stream. They are on disk on return."""
    channel.confirm_delivery()
    published = [b"%0*d" % (size, number) for number in range(start, start + count)]
    for body in published:
        channel.basic_publish("", stream, body, mandatory=True)
    return published


def rows(broker: Managed | None, **options: Any) -> list[dict[str, Any]]:
    """Rows of a batch read, by queue and offset."""
    reader = source(broker, options).reader(SCHEMA)
    return read(reader, reader.partitions())


class Query:
    """A streaming query as run by Spark: offsets are kept as text, as in a checkpoint."""

    def __init__(self, broker: Managed | None, start: str | None = None, **options: Any) -> None:
        self._reader = source(broker, options).streamReader(SCHEMA)
        self._start = json.dumps(self._reader.initialOffset()) if start is None else start
        self._batch: tuple[str, str] | None = None

    def at(self, broker: Managed | None, **options: Any) -> None:
        """Continue from the checkpoint, as a restarted query."""
        self._reader = source(broker, options).streamReader(SCHEMA)

    @property
    def end(self) -> str:
        """The checkpoint's end of the last micro-batch."""
        return self._start

    def batch(self, most: int = 1000) -> list[dict[str, Any]]:
        """The rows of the next micro-batch."""
        end = json.dumps(self._reader.latestOffset(json.loads(self._start), ReadMaxRows(most)))
        self._batch, self._start = (self._start, end), end
        return self.repeated()

    def repeated(self) -> list[dict[str, Any]]:
        """The rows of the last micro-batch again."""
        assert self._batch is not None
        start, end = map(json.loads, self._batch)
        return read(self._reader, self._reader.partitions(start, end))


def source(broker: Managed | None, options: dict[str, Any]) -> JumpMQDataSource:
    given = ({} if broker is None else {"url": broker.http_url}) | options
    return JumpMQDataSource({name: str(value) for name, value in given.items()})


def read(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    found = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["queue"], row["seq"]))


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["body"] for row in found]
