"""Exclusion of a second run of a pipeline with the same checkpoint, which would take over from the first run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from jumpmq.spark.client import Client
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.starting import last_number, read_text

LEAVES = 12.0
"""Seconds to wait for the end of a killed run. The JVM of a killed driver runs on for some three seconds, more on a
busy machine; the broker then waits 2 seconds for a new connection."""

LOOK = 0.2
"""Seconds between two checks for the killed run."""


def require_alone(spark: SparkSession, source: Mapping[str, str], checkpoint: str) -> None:
    """Refuse to begin while a running query reads the queues with this checkpoint.

    Args:
        source: options of the source.

    Raises:
        JumpMQError: a query reads with the checkpoint, and still does after :data:`LEAVES`.
    """
    options = SourceOptions.parse(source)
    last = last_number(spark, f"{checkpoint}/offsets")
    if last is None or options.broker.speaks_amqp:
        return
    groups = set(_groups(read_text(spark, f"{checkpoint}/offsets/{last}")))
    client, until = Client(options.broker), time.monotonic() + LEAVES
    client.require_broker()
    while any((one["name"], one["query"]) in groups and one["alive"] for one in client.readers()):
        if time.monotonic() > until:
            raise JumpMQError(
                f"another run reads with the checkpoint {checkpoint}, and this run would end that one: wait for its "
                "end, or stop it. The broker forgets a run on a lost machine after a minute"
            )
        time.sleep(LOOK)


def _groups(offsets: str) -> list[tuple[str, str]]:
    """Return the groups in a checkpoint's offsets file, with their queries."""
    found: list[Any] = []
    for line in offsets.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # the line with the version
    return [
        (one["group"], str(one.get("query", one["group"]))) for one in found if isinstance(one, dict) and "group" in one
    ]
