"""`jumpmq pipeline …`, `jumpmq uniformity` and `jumpmq plan`: commands that run on Spark."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jumpmq.cli.errors import INTERRUPTED, fail
from jumpmq.cli.terminal import echo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableFormat(StrEnum):
    """File formats of a table."""

    parquet = "parquet"
    csv = "csv"
    json = "json"


class HashFunctionName(StrEnum):
    """Hash functions of a ring."""

    phash2 = "phash2"
    xxh64 = "xxh64"
    murmur2 = "murmur2"
    murmur3 = "murmur3"


REACH = 5.0
"""Timeout of a connection to Spark's master, in seconds."""

POSITIONS = 1 << 21
"""Number of keys distinguished by RabbitMQ's hash on a ring."""

Url = Annotated[str, typer.Option(envvar="JUMPMQ_URL", help="management URL of the broker, with user and password")]
Vhost = Annotated[str, typer.Option(help="virtual host")]
Master = Annotated[str, typer.Option(envvar="SPARK_MASTER", help="Spark's master, such as spark://host:7077")]
Report = Annotated[Path | None, typer.Option(metavar="FILE", help="also write the report as an HTML page")]
DEFAULT_URL = "http://guest:guest@127.0.0.1:15672"

pipeline = typer.Typer(name="pipeline", no_args_is_help=True, help="Move messages between queues and tables, on Spark.")


@pipeline.command()
def archive(
    exchange: Annotated[str, typer.Argument(help="exchange whose bound queues are read")],
    table: Annotated[str, typer.Argument(help="directory of the Parquet table")],
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    checkpoint: Annotated[
        str | None, typer.Option(help="checkpoint directory", show_default="beside the table")
    ] = None,
    by_hour: Annotated[bool, typer.Option("--by-hour", help="partition by hour too")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="run until stopped")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="continue a table begun with another checkpoint")] = False,
    master: Master = "local[*]",
) -> None:
    """Move messages from an exchange's queues into a Parquet table, exactly once."""
    with _spark(master, "archive") as spark:
        from jumpmq.spark.pipelines.archive import archive as run

        source = {"url": url, "vhost": vhost, "exchange": exchange}
        rows = run(
            spark, source, table, checkpoint, by_hour=by_hour, continuous=continuous, go_on=go_on,
            progress=_tell,
        )  # fmt: skip
        echo(f"{rows:,} messages archived in {table}")


@pipeline.command()
def publish(
    path: Annotated[str, typer.Argument(help="path of the table")],
    exchange: Annotated[str, typer.Argument(help="target exchange")],
    key: Annotated[str, typer.Option(help="column for the routing key, and for a hashed header or property")],
    body: Annotated[str | None, typer.Option(help="column for the body", show_default="all, as JSON")] = None,
    format: Annotated[TableFormat, typer.Option(help="format of the table")] = TableFormat.parquet,
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    master: Master = "local[*]",
) -> None:
    """Publish the rows of a table to an exchange, confirmed."""
    with _spark(master, "publish") as spark:
        from jumpmq.spark.pipelines.publish import publish as run

        rows = run(spark, path, format.value, key, {"url": url, "vhost": vhost, "exchange": exchange}, body)
        echo(f"{rows:,} messages published to {exchange}")


@pipeline.command()
def replay(
    source: Annotated[
        str, typer.Argument(metavar="TABLE|STREAM", help="a table made by `archive`; with --stream, a stream")
    ],
    exchange: Annotated[str, typer.Argument(help="target exchange")],
    where: Annotated[str | None, typer.Option(help="SQL condition, such as \"queue = 'q1'\"")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="read a stream of the broker")] = False,
    first: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="offset or time in a stream", show_default="earliest")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="end before this offset or time", show_default="latest")
    ] = None,
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    master: Master = "local[*]",
) -> None:
    """Publish an archived table, or a range of a stream, again, in the order of the queue."""
    if not stream and (first or end):
        fail("--from and --to are for a stream: give --stream, or choose rows of a table with --where", 2)
    with _spark(master, "replay") as spark:
        from jumpmq.spark.pipelines.publish import replay as run
        from jumpmq.spark.pipelines.publish import replay_stream

        broker = {"url": url, "vhost": vhost}
        target = broker | {"exchange": exchange}
        if stream:
            places = {"startingOffsets": first or "earliest", "endingOffsets": end or "latest"}
            rows = replay_stream(spark, broker | places | {"queue": source}, target, where)
        else:
            rows = run(spark, source, target, where)
        echo(f"{rows:,} messages published to {exchange}")


@pipeline.command()
def rebalance(
    exchange: Annotated[str, typer.Argument(help="a hash exchange with changed queues")],
    checkpoint: Annotated[str, typer.Option(help="checkpoint directory; use the same one after a failure")],
    queues: Annotated[
        str | None, typer.Option(help="names of queues, with commas", show_default="queues bound to the exchange")
    ] = None,
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    master: Master = "local[*]",
) -> None:
    """Move waiting messages to the current queues of their keys, in order, exactly once."""
    with _spark(master, "rebalance") as spark:
        from jumpmq.spark.pipelines.rebalance import rebalance as run
        from jumpmq.spark.router import Router

        source = {"url": url, "vhost": vhost} | ({"exchange": exchange} if queues is None else {"queues": queues})
        rows = run(spark, source, Router.from_broker(url, exchange, vhost), checkpoint, progress=_tell)
        echo(f"{rows:,} messages are where their keys belong")


def uniformity(
    buckets: Annotated[str, typer.Option(metavar="N..M", help="numbers of queues of weight 1")] = "2..20",
    keys: Annotated[int, typer.Option(min=1, help="number of keys: the numbers from 0, as text")] = 100_000,
    hash_function: Annotated[
        HashFunctionName | None,
        typer.Option(help="hash function of the keys", show_default="phash2, and both beyond 2^21 keys"),
    ] = None,
    exchange: Annotated[str | None, typer.Option(help="test this exchange and the messages in its queues")] = None,
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    report: Report = None,
    master: Master = "local[*]",
) -> None:
    """Test how evenly keys spread over queues: chi-squared tests with their critical values."""
    first, last = _range(buckets)
    _require_writable(report)
    with _spark(master, "uniformity") as spark:
        if exchange is not None:
            _uniformity_of_exchange(spark, url, vhost, exchange, report)
            return
        from jumpmq.spark.pipelines.tables import bucket_tests

        both = (HashFunctionName.phash2, HashFunctionName.xxh64) if keys > POSITIONS else (HashFunctionName.phash2,)
        found = {}
        for function in both if hash_function is None else (hash_function,):
            tests = found[function.value] = bucket_tests(spark, range(first, last + 1), keys, function.value)
            echo(f"{function.value} of {keys:,} keys:")
            _show(tests)
            above = sum(one.statistic > one.critical_05 for one in tests)
            echo(f"{above} of {len(tests)} are above their critical value for p = 0.05")
        if report is not None:
            from jumpmq.spark.page import buckets_page, save

            save(buckets_page(found, f"Uniformity over {keys:,} keys"), report)


def plan(
    exchange: Annotated[str, typer.Argument(help="a hash exchange")],
    add: Annotated[list[str] | None, typer.Option(metavar="QUEUE[=WEIGHT]", help="a queue to bind")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="QUEUE", help="a queue to unbind")] = None,
    keys: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="keys, one a line", show_default="keys of the messages in the queues"),
    ] = None,
    url: Url = DEFAULT_URL,
    vhost: Vhost = "/",
    report: Report = None,
    master: Master = "local[*]",
) -> None:
    """Show the moves that a change of an exchange's queues would cause, beside the minimum."""
    _require_writable(report)
    with _spark(master, "plan") as spark:
        from jumpmq.spark.moves import movement
        from jumpmq.spark.pipelines.tables import waiting_keys
        from jumpmq.spark.router import Router

        _tell_unread(url, vhost)
        before = Router.from_broker(url, exchange, vhost)
        if keys is None:
            frame, before = waiting_keys(spark, url, vhost, exchange, before)
        else:
            frame = spark.read.text(keys).withColumnRenamed("value", "key")
        found = movement(frame, "key", before, before.changed(add or [], remove or []))
        for move in found.moves:
            places = f"{_place(move.source)} -> {_place(move.target)}"
            echo(f"{places}: {move.keys:,} keys, {move.messages:,} messages")
        echo(
            f"{found.moved_keys:,} of {found.keys:,} keys move ({found.moved:.2%}), with {found.moved_messages:,} of "
            f"{found.messages:,} messages; at least {found.least:.2%} of the keys must"
        )
        if report is not None:
            from jumpmq.spark.page import movement_page, save

            save(movement_page(found, f"Moves in {exchange}"), report)


def _uniformity_of_exchange(spark: SparkSession, url: str, vhost: str, exchange: str, report: Path | None) -> None:
    from jumpmq.spark.pipelines.tables import waiting_keys
    from jumpmq.spark.router import Router
    from jumpmq.spark.spread import uniformity as measure

    frame, router = waiting_keys(spark, url, vhost, exchange, Router.from_broker(url, exchange, vhost))
    found = measure(frame, "key", router)
    for share in found.shares:
        echo(
            f"{share.queue}: {share.keys:,} keys ({share.expected_keys:,.0f} expected), "
            f"{share.messages:,} messages ({share.expected_messages:,.0f} expected)"
        )
    _show(found.tests)
    for hot in found.hot_keys:
        echo(f"hot key {hot.key} in {hot.queue}: {hot.messages:,} messages, {hot.share:.2%} of all")
    if report is not None:
        from jumpmq.spark.page import save, uniformity_page

        save(uniformity_page(found, f"Uniformity of {exchange}"), report)


def _tell_unread(url: str, vhost: str) -> None:
    """Warn of messages in unbound queues: no change of an exchange moves these messages."""
    from jumpmq.spark.client import Client
    from jumpmq.spark.options import BrokerAddress

    for one in Client(BrokerAddress(url, vhost)).unread():
        if not one["bound"]:
            echo(f"queue '{one['name']}' is not bound, has {one['ready']:,} messages and no reader", err=True)


def _place(queue: str | None) -> str:
    return "no queue" if queue is None else queue


def _tell(rows: int) -> None:
    if rows:
        echo(f"{rows:,} messages", err=True)


def _show(tests: list[Any]) -> None:
    echo("over      buckets  chi-squared  degrees      p  p=0.05  p=0.01  largest deviation")
    for one in tests:
        echo(
            f"{one.over:<9} {one.buckets:>7} {one.statistic:>12.3f} {one.degrees:>8} {one.p_value:>6.3f} "
            f"{one.critical_05:>7.2f} {one.critical_01:>7.2f} {one.largest_deviation:>18.2%}"
        )


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not first.isdigit() or (dots and not last.isdigit()) or not 1 <= int(first) <= int(last or first) <= 100_000:
        fail(f"--buckets is a number or a range such as 2..20, not {text}", 2)
    return int(first), int(last or first)


@contextmanager
def _spark(master: str, name: str) -> Iterator[SparkSession]:
    """Run a Spark session; errors of the block become one line."""
    _require_master(master)
    try:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from jumpmq.spark.errors import JumpMQError, reason
        from jumpmq.spark.pipelines.session import session
    except ModuleNotFoundError as missing:
        fail(f"the command needs the package {missing.name}: pip install 'jumpmq[spark]'")
    try:
        with session(master, f"jumpmq {name}") as spark:
            yield spark
    except JumpMQError as error:
        fail(str(error))
    except (PySparkException, Py4JJavaError) as error:
        fail(reason(error))
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def _require_master(master: str) -> None:
    """Refuse an unreachable master: Spark reports an unreachable master after minutes, or without a clear message."""
    if not re.fullmatch(r"local(\[.+\])?|yarn|spark://[^/]+|k8s://.+", master):
        fail(f"--master is local[*], local[2], spark://HOST:7077, yarn or k8s://…, not {master}", 2)
    if master.startswith("spark://"):
        addresses = [one.rpartition(":") for one in master.removeprefix("spark://").split(",")]
        if not any(port.isdigit() and _listens(host, int(port)) for host, _, port in addresses):
            fail(f"nothing listens at {master}: is Spark's master running there?")


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, OverflowError), socket.create_connection((host.strip("[]"), port), REACH):
        return True
    return False


def _require_writable(report: Path | None) -> None:
    """Refuse a report path that cannot be written, before the work begins."""
    if report is not None and (report.is_dir() or not os.access(report.parent, os.W_OK)):
        fail(f"cannot write {report}: the path is a directory, or its directory is missing or not writable", 2)
