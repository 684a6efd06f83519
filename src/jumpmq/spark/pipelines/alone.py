"""Only one run of a pipeline at a time: a second one with the same checkpoint would take over from the first."""

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

LEAVES = 4.0
"""Seconds that a run is given to be gone that was just killed; the broker gives one without a connection 2."""

LOOK = 0.2
"""Seconds between two looks whether it is gone."""


def require_alone(spark: SparkSession, source: Mapping[str, str], checkpoint: str) -> None:
    """Refuse to begin while another run reads queues with the same checkpoint.

    Args:
        source: options of the source.

    Raises:
        JumpMQError: one does, and goes on.
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
                f"another run reads with the checkpoint {checkpoint}, and this one would end it: wait for its end, or "
                "stop it. One whose machine is gone is forgotten after a minute"
            )
        time.sleep(LOOK)


def _groups(offsets: str) -> list[tuple[str, str]]:
    """The groups that a file of a checkpoint's offsets names, each with its query."""
    found: list[Any] = []
    for line in offsets.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # the version
    return [
        (one["group"], str(one.get("query", one["group"]))) for one in found if isinstance(one, dict) and "group" in one
    ]
