"""Publishing of late flights from the demo's table to a sharded exchange, by Spark's sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from jumpmq.cli.demo.findings import LATE
from jumpmq.management import ManagementClient
from jumpmq.spark import Router, uniformity
from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress
from jumpmq.spark.page import save, uniformity_page

EXCHANGE = "late-flights"
SHARDS = 3


@dataclass(frozen=True)
class LateFlights:
    """Number of late flights in the table, and of messages in the shards."""

    published: int = 0
    shards: Mapping[str, int] = field(default_factory=dict)


def publish_late(spark: SparkSession, url: str) -> LateFlights:
    """Publish the late flights of the view `flights`, with the tail number as routing key.

    Args:
        url: URL of the management API, with user and password.
    """
    broker = ManagementClient(url)
    policy = {"pattern": f"^{EXCHANGE}$", "definition": {"shards-per-node": SHARDS}, "apply-to": "exchanges"}
    broker.put("policies", "/", EXCHANGE, body=policy)
    broker.put("exchanges", "/", EXCHANGE, body={"type": "x-modulus-hash", "durable": True})
    late = spark.sql(f"""
        SELECT tailnum AS routing_key, to_json(struct(*)) AS body
        FROM flights WHERE arr_delay >= {LATE} AND tailnum IS NOT NULL
    """)
    late.write.format("jumpmq").mode("append").options(url=url, exchange=EXCHANGE).save()
    ranges = Client(BrokerAddress(url)).ranges(EXCHANGE, [])
    return LateFlights(late.count(), {queue: at["messages"] for queue, at in sorted(ranges.items())})


def write_page(spark: SparkSession, url: str, exchange: str, file: Path) -> None:
    """Write an HTML page on the distribution of the view's tail numbers over an exchange's queues."""
    keys = spark.sql("SELECT coalesce(tailnum, '') AS key FROM flights")
    save(uniformity_page(uniformity(keys, "key", Router.from_broker(url, exchange)), f"Uniformity of {exchange}"), file)
