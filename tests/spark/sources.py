"""Common parts of the source's tests: published messages, and short ways to read them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pika
from pika.adapters.blocking_connection import BlockingChannel

import jumpmq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUEUES = ("q1", "q2")


class Managed(Protocol):
    """A broker with a management port."""

    @property
    def http_url(self) -> str: ...


def declare(channel: BlockingChannel, queues: Iterable[str] = QUEUES) -> None:
    """A durable hash exchange ``x`` over durable queues."""
    channel.exchange_declare("x", "x-consistent-hash", durable=True)
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "x", "1")


def publish(channel: BlockingChannel, bodies: Iterable[bytes]) -> list[bytes]:
    """Publish persistent messages through ``x``, with the body as routing key. They are on disk on return."""
    channel.confirm_delivery()
    published = list(bodies)
    for body in published:
        channel.basic_publish("x", body, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    return published


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, last + 1)]


def table(spark: SparkSession, broker: Managed, **options: Any) -> DataFrame:
    """A batch DataFrame."""
    return spark.read.format("jumpmq").options(**_given(broker, options)).load()


def stream(spark: SparkSession, broker: Managed, **options: Any) -> DataFrame:
    """A streaming DataFrame."""
    return spark.readStream.format("jumpmq").options(**_given(broker, options)).load()


def _given(broker: Managed, options: dict[str, Any]) -> dict[str, Any]:
    return {"url": broker.http_url} | options


def run_available(frame: DataFrame, directory: Path, each_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Run a streaming query over the present messages, with its checkpoint in the directory, to its end.

    Spark limits the start of the planning process to ten seconds; on a busy machine the query is retried.
    """
    from pyspark.errors import StreamingQueryException  # here, because tests are skipped without PySpark

    writer = frame.writeStream.foreachBatch(each_batch).option("checkpointLocation", str(directory / "checkpoint"))
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query


class Restartable:
    """A durable broker that can be stopped and restarted with the same ports."""

    http_url: str
    amqp_url: str

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._port = self._http_port = 0

    def __enter__(self) -> Restartable:
        running = self._stack.enter_context(
            jumpmq.running(data_dir=self._directory, port=self._port, http_port=self._http_port)
        )
        self._port, self._http_port = running.port, running.http_port
        self.http_url, self.amqp_url = running.http_url, running.amqp_url
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stack.close()

    def restart(self) -> None:
        self.stop()
        self.__enter__()


class Sink:
    """A transactional sink: keeps the last attempt of every micro-batch.

    Attributes:
        batches: rows by the number of the micro-batch.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def bodies(self) -> list[bytes]:
        """All bodies, sorted."""
        return sorted(bytes(row.body) for row in self.rows)
