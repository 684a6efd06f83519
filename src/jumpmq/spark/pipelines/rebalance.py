"""Moving waiting messages, after a change of topology, to the queues of their keys.

How it works. A streaming query reads the queues that are rebalanced, and puts each message straight into the queue that
the exchange gives its key now, which may be where it came from. Messages of a key lie in one queue before, and in one
after, and keep their order on the way, as what a micro-batch reads of a queue is one partition. The source gives every
message once, and the sink takes every micro-batch once, so that a job that is killed goes on with the same checkpoint
and loses and repeats nothing. It goes on to the ends that the queues had when it was begun: what it has put behind them
must not come before what it has not moved yet, or a key's messages would change places. Messages with other keys that
are published meanwhile are not held up; to keep the order of a key that is being moved, let publishers rest while it
runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.pipelines.session import followed, known_to_source
from jumpmq.spark.router import Router
from jumpmq.spark.routing import route_messages
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.streams.kinds import reads_streams

MOVED = StructType([SCHEMA[name] for name in ("exchange", "routing_key", "body", "amqp_properties")])
"""Columns defining the message."""


def rebalance(
    spark: SparkSession,
    source: Mapping[str, str],
    router: Router,
    checkpoint: str,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Move waiting messages; returns how many were looked at.

    Args:
        source: options of the source: the queues that have what may have to move.
        router: the exchange's decision now.
        checkpoint: a directory; the same one after a failure.
        progress: called with the rows of each micro-batch.

    Raises:
        JumpMQError: the queues are streams.
    """
    if reads_streams(SourceOptions.parse(source)):
        raise JumpMQError("the queues are streams, which keep what they have: only other queues can be rebalanced")
    reader = spark.readStream.format("jumpmq").options(**source)
    group = f"rebalance-{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}"
    reader = reader.option("group", group).option("keepOrder", True).option("sameEnds", True)
    frame = reader.options(**known_to_source(checkpoint)).schema(MOVED).load()
    placed = route_messages(frame, router)
    writer = placed.writeStream.format("jumpmq").option("url", source["url"]).option("vhost", source.get("vhost", "/"))
    writer = writer.option("deliveryMode", "transient")  # persistence is kept per message
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    return followed(query, progress)
