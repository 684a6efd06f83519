"""One Spark session for all tests, and a durable broker per test."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.spark.sources import declare

import jumpmq

if TYPE_CHECKING:  # without PySpark, no test of this folder runs
    from pyspark.sql import SparkSession

pyspark = pytest.importorskip("pyspark")

PATIENCE = 600
"""Timeout of a test in seconds: Spark starts slowly, and many times slower on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark: two cores, and up to two failures of a task."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later")
    from pyspark.sql import SparkSession

    import jumpmq.spark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("jumpmq tests")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    jumpmq.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[jumpmq.RunningBroker]:
    """A durable broker on free ports, with queues spread over the processes of ``--workers``."""
    workers = request.config.getoption("--workers")
    locator = "balanced" if workers > 1 else "client-local"
    with jumpmq.running(data_dir=tmp_path / "broker", workers=workers, queue_leader_locator=locator) as running:
        yield running


@pytest.fixture
def channel(broker: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a real AMQP client, with a durable hash exchange ``x`` over the queues ``q1`` and ``q2``."""
    with pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_url}?heartbeat=0")) as connection:
        channel = connection.channel()
        declare(channel)
        yield channel


@pytest.fixture
def one_process(request: pytest.FixtureRequest) -> None:
    """Skip the test with several workers: a batch with rows for a refusing queue of another worker is refused."""
    if request.config.getoption("--workers") > 1:
        pytest.skip("queues that refuse are at other workers")


@pytest.fixture
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)
