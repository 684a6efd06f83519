"""The commands of the pages on RabbitMQ and Spark work with every installed RabbitMQ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession

from jumpmq.testing import Installation, RabbitMQ

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)


@pytest.fixture(scope="module", params=Installation.all(), ids=lambda one: one.number)
def rabbitmq(request: pytest.FixtureRequest) -> Iterator[RabbitMQ]:
    with RabbitMQ(installation=request.param) as running:
        yield running


@pytest.fixture
def channel(rabbitmq: RabbitMQ) -> Iterator[Any]:
    """A channel to a broker without the pages' declarations."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbitmq.port, heartbeat=0)) as connection:
        channel = connection.channel()
        for name in ("orders", "clicks", "orders.lake"):
            channel.queue_delete(name)
            channel.exchange_delete(name)
        yield channel


@pytest.fixture
def printed(
    spark: SparkSession,
    rabbitmq: RabbitMQ,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], list[str]]:
    """A function that runs a page in a new folder, and returns the words printed by its programs."""

    def run(page: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        run_page(page, rabbitmq.port, tmp_path)
        return capsys.readouterr().out.split()

    return run


def run_page(name: str, port: int, directory: Path) -> None:
    """Run the programs of a page in sequence."""
    names: dict[str, object] = {}
    for source in re.findall(r"^```python\n(.*?)^```$", (DOCS / name).read_text(), flags=re.DOTALL | re.MULTILINE):
        source = source.replace("localhost:5672", f"127.0.0.1:{port}")
        source = re.sub(r'"(\w+\.(?:parquet|checkpoint))"', rf'"{directory}/\1"', source)  # the JVM keeps its directory
        exec(compile(source, f"docs/{name}", "exec"), names)


def test_rabbitmq_from_spark(printed: Callable[[str], list[str]], channel: BlockingChannel) -> None:
    assert printed("rabbitmq-from-spark.md") == ["1000", "1000", "1000", "100"]
    assert channel.queue_declare("orders", passive=True).method.message_count == 0


def test_rabbitmq_to_delta(printed: Callable[[str], list[str]], channel: BlockingChannel) -> None:
    """Existing consumers still get all messages."""
    for needed in ("deltalake", "pandas"):
        pytest.importorskip(needed)
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "orders", "#")
    assert printed("rabbitmq-to-delta.md") == ["100", "100", "7425.0", "100"]
    assert channel.queue_declare("orders", passive=True).method.message_count == 100
