"""Output of `jumpmq pipeline`, `jumpmq uniformity` and `jumpmq plan`, and errors of wrong command lines."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.http.api import API
from tests.java import SHORT_LIVED
from tests.spark.commands import run
from tests.spark.sources import numbered, publish, table

import jumpmq


def test_pipelines(spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path) -> None:
    publish(channel, numbered(1, 60))
    place, url = tmp_path / "table", ("--url", broker.http_url)
    assert "60 messages archived in" in run("pipeline", "archive", "x", place, "--by-hour", *url)
    assert "0 messages archived in" in run("pipeline", "archive", "x", place, "--by-hour", *url)
    assert "30 messages published to x" in run("pipeline", "replay", place, "x", "--where", "body > '0030'", *url)
    (tmp_path / "keys.csv").write_text("id,value\n7,a\n8,b\n")
    csv = ("--format", "csv", "--key", "id", "--body", "value")
    assert "2 messages published to x" in run("pipeline", "publish", tmp_path / "keys.csv", "x", *csv, *url)
    channel.queue_declare("q3", durable=True)
    channel.queue_bind("q3", "x", "1")
    moved = run("pipeline", "rebalance", "x", "--checkpoint", tmp_path / "rebalance", *url)
    assert "32 messages are where their keys belong" in moved
    assert API(broker.http_url).counts("q3")[0] > 0
    assert table(spark, broker, exchange="x").count() == 32


def test_a_command_does_not_stop_a_spark_that_another_thread_started(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    publish(channel, numbered(1, 3))
    with ThreadPoolExecutor(1) as other:
        said = other.submit(run, "pipeline", "archive", "x", tmp_path / "table", "--url", broker.http_url).result()
    assert "3 messages archived in" in said
    assert spark.range(3).count() == 3


@pytest.mark.slow
def test_streams_are_archived_from_their_beginning_and_replayed_by_range(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare("logs", "x-consistent-hash", durable=True)
    channel.queue_bind("log", "logs", "1")
    channel.confirm_delivery()
    for body in numbered(0, 39):
        channel.basic_publish("logs", body, body)
    url = ("--url", broker.http_url)
    assert "40 messages archived in" in run("pipeline", "archive", "logs", tmp_path / "table", *url)
    assert "0 messages archived in" in run("pipeline", "archive", "logs", tmp_path / "table", *url)
    replayed = run("pipeline", "replay", "log", "x", "--stream", "--from", 10, "--to", 30, *url)
    assert "20 messages published to x" in replayed
    assert sorted(bytes(row.body) for row in table(spark, broker, exchange="x").collect()) == numbered(10, 29)
    said = run("pipeline", "rebalance", "logs", "--checkpoint", tmp_path / "c", *url, status=1)
    assert "the queues are streams, which keep what they have" in said


@pytest.mark.slow
def test_control_c_ends_a_pipeline_in_a_line_and_the_same_command_goes_on(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Control-C, sent to the whole process group as by a terminal, ends a pipeline; the same command continues it."""
    publish(channel, numbered(1, 30))
    arguments = ("pipeline", "archive", "x", str(tmp_path / "table"), "--url", broker.http_url)
    process = subprocess.Popen(
        [sys.executable, "-m", "jumpmq", *arguments, "--continuous", "--master", "local[1]"],
        env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = [next(line for line in process.stdout if "messages" in line)]
        os.killpg(process.pid, signal.SIGINT)
        said += process.stdout
        assert process.wait() == 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert said == ["30 messages\n", f"30 messages archived in {tmp_path / 'table'}\n", "jumpmq: interrupted\n"]
    publish(channel, numbered(31, 40))
    assert "10 messages archived in" in run(*arguments)
    rows = spark.read.parquet(str(tmp_path / "table")).select("body").collect()
    assert sorted(bytes(row.body) for row in rows) == numbered(1, 40)


def self_contained(page: str) -> bool:
    """Return true if a page loads nothing from the network."""
    return page.startswith("<!doctype html>") and not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", page)


@pytest.mark.slow
def test_uniformity(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    said = run("uniformity", "--buckets", "2..4", "--keys", 1000, "--report", report)
    assert "phash2 of 1,000 keys:" in said and "of 3 are above their critical value for p = 0.05" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("keys")] == ["2", "3", "4"]
    assert "<svg" in report.read_text() and self_contained(report.read_text())
    publish(channel, numbered(1, 60))
    said = run("uniformity", "--exchange", "x", "--url", broker.http_url, "--report", report)
    assert re.search(r"q1: \d+ keys \(30 expected\)", said)
    assert "<svg" in report.read_text() and self_contained(report.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
def test_what_is_hashed_is_counted(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, kind: str
) -> None:
    """Uniformity counts the hashed header, by its type: the routing keys are all alike."""
    channel.exchange_declare("h", kind, arguments={"hash-header": "customer"})
    for number in range(3):
        channel.queue_declare(f"h{number}")
        channel.queue_bind(f"h{number}", "h", "1")
    for number in range(60):
        for customer in (number % 20, f"c{number % 20}"):
            channel.basic_publish("h", "same", b"", pika.BasicProperties(headers={"customer": customer}))
    channel.basic_publish("h", "same", b"")
    api = API(broker.http_url)
    while sum(ready := [api.counts(f"h{number}")[0] for number in range(3)]) < 121:
        pass
    said = run("uniformity", "--exchange", "h", "--url", broker.http_url)
    found = re.findall(r"(h\d): (\d+) keys \([\d.]+ expected\), (\d+) messages", said)
    assert {name: int(messages) for name, _, messages in found} == {f"h{n}": count for n, count in enumerate(ready)}
    assert sum(int(keys) for _, keys, _ in found) == 41
    said = run("plan", "h", "--add", "h3", "--url", broker.http_url)
    assert "of 41 keys move" in said and "of 121 messages" in said


def test_plan(spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path) -> None:
    publish(channel, numbered(1, 60))
    report, url = tmp_path / "report.html", ("--url", broker.http_url)
    said = run("plan", "x", "--add", "q3=2", "--report", report, *url)
    assert re.search(r"q1 -> q3: \d+ keys", said) and "of 60 keys move" in said
    assert "at least 50.00% of the keys must" in said
    assert "<svg" in report.read_text() and self_contained(report.read_text())
    (tmp_path / "keys").write_text("\n".join(map(str, range(100))))
    said = run("plan", "x", "--remove", "q1", "--remove", "q2", "--keys", tmp_path / "keys", *url)
    assert "q1 -> no queue" in said and "100 of 100 keys move" in said and "at least 100.00% of the keys must" in said


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ("uniformity --buckets some", 2, "--buckets is a number or a range such as 2..20, not some"),
        ("uniformity --buckets 5..2", 2, "--buckets is a number or a range such as 2..20, not 5..2"),
        ("uniformity --report {tmp}/none/report.html", 2, "cannot write {tmp}/none/report.html: the path is a"),
        ("uniformity --report {tmp}", 2, "cannot write {tmp}: the path is a directory, or"),
        ("uniformity --master nonsense", 2, "--master is local[*], local[2], spark://HOST:7077, yarn or k8s://"),
        ("uniformity --master spark://127.0.0.1:1", 1, "nothing listens at spark://127.0.0.1:1: is Spark's master"),
        ("uniformity --exchange amq.topic {url}", 1, "exchange 'amq.topic' is of type topic, which hashes nothing"),
        ("plan x --add q3=many {url}", 1, "a queue is added as NAME or NAME=WEIGHT, with a weight from 1, not"),
        ("plan x --add =2 {url}", 1, "a queue is added as NAME or NAME=WEIGHT"),
        ("plan x --add q1 {url}", 1, "'q1' is on the ring already"),
        ("plan x --remove q3 {url}", 1, "'q3' is not on the ring"),
        ("plan m --remove q3 {url}", 1, "'q3' is not bound"),
        ("plan x --add q3 --keys {tmp}/none {url}", 1, "Spark failed: [PATH_NOT_FOUND] Path does not exist"),
        ("pipeline publish {tmp}/some.csv x", 2, "Missing option '--key'"),
        ("pipeline publish {tmp}/some.csv x --key id {url}", 1, "some.csv is not a Parquet file"),
        ("pipeline publish {tmp}/some.csv x --format csv --key k {url}", 1, "there is no column 'k' in"),
        ("pipeline replay {tmp}/none x {url}", 1, "Spark failed: [PATH_NOT_FOUND] Path does not exist"),
        ("pipeline replay {tmp}/none x --from 5 {url}", 2, "--from and --to are for a stream: give --stream"),
        (
            "pipeline replay q1 x --stream {url}",
            1,
            "option 'startingOffsets' is for streams, and queue 'q1' is of type",
        ),
        ("pipeline rebalance x {url}", 2, "Missing option '--checkpoint'"),
        ("pipeline rebalance nothing --checkpoint {tmp}/c {url}", 1, "no exchange 'nothing' in vhost '/'"),
    ],
)
def test_a_wrong_command_line(
    spark: SparkSession,
    broker: jumpmq.RunningBroker,
    channel: BlockingChannel,
    tmp_path: Path,
    arguments: str,
    status: int,
    reason: str,
) -> None:
    channel.exchange_declare("m", "x-modulus-hash")
    (tmp_path / "some.csv").write_text("id,value\n7,a\n")
    names = {"tmp": str(tmp_path), "url": f"--url {broker.http_url}"}
    said = run(*arguments.format(**names).split(), status=status)
    assert reason.format(**names) in said.replace("\n", " ")
    assert "Traceback" not in said


def test_a_condition_that_is_no_sql(
    spark: SparkSession, broker: jumpmq.RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    columns = "id AS seq, 'q' AS queue, 'k' AS routing_key, 'b' AS body"
    spark.range(1).selectExpr(*columns.split(", ")).write.parquet(str(tmp_path / "table"))
    said = run(
        "pipeline", "replay", tmp_path / "table", "x", "--where", "queue = (", "--url", broker.http_url, status=1
    )
    assert "jumpmq: Spark failed: [PARSE_SYNTAX_ERROR]" in said
