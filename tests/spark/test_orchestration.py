"""The examples for Airflow and dbt run where installed."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from tests.spark.sources import numbered, publish

from jumpmq import RunningBroker

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("airflow") is None, reason="Airflow is not installed: pip install apache-airflow")
def test_airflow(spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path) -> None:
    """Both runs of the DAG add the messages published before them to the table."""
    (tmp_path / "dags").mkdir()
    shutil.copy(EXAMPLES / "airflow/archive.py", tmp_path / "dags")
    table = tmp_path / "archive.parquet"
    settings = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JUMPMQ_URL": broker.http_url,
        "EXCHANGE": "x",
        "TABLE": str(table),
    }

    def airflow(*words: str) -> None:
        command = [str(shutil.which("airflow")), *words]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    airflow("db", "migrate")
    published = publish(channel, numbered(1, 100))
    airflow("dags", "test", "archive")
    published += publish(channel, numbered(101, 150))
    airflow("dags", "test", "archive")
    assert sorted(bytes(row.body) for row in spark.read.parquet(str(table)).collect()) == published


def test_dbt(spark: SparkSession, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path) -> None:
    """A model over ready messages leaves them in the queues."""
    pytest.importorskip("dbt.adapters.spark")
    publish(channel, numbered(1, 50))
    runpy.run_path(str(EXAMPLES / "dbt/run.py"))["run"](broker.http_url, "x", str(tmp_path))
    assert {row.customer: row.orders for row in spark.table("customers").collect()} == {
        f"{number:04}": 1 for number in range(1, 51)
    }
    spark.sql("drop table customers")
    assert sum(channel.queue_declare(queue, passive=True).method.message_count for queue in ("q1", "q2")) == 50
