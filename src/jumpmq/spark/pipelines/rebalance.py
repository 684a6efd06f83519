"""Moving of waiting messages, after a change of topology, to the queues of their keys.

How it works. A streaming query reads the queues to rebalance, and publishes each message directly to the queue that the
exchange now selects for its key, which may be the queue that the message came from.

Messages of a key keep their order: they are in one queue before and in one queue after, and the messages that a
micro-batch reads of a queue are one partition.

A killed job continues with the same checkpoint, without loss or duplicates: the source delivers every message once, and
the sink publishes every micro-batch once. The continued job reads up to the ends that the queues had at its first
start. Messages published by the job are after these ends, and must not be moved before the job's remaining messages:
otherwise messages of a key would change order.

Publishers may go on during the job. To keep the order of a key that is being moved, stop publishers of that key while
the job runs.
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
"""Columns that the published message consists of."""


def rebalance(
    spark: SparkSession,
    source: Mapping[str, str],
    router: Router,
    checkpoint: str,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Move waiting messages; return the number of messages read.

    Args:
        source: options of the source: the queues with messages that may have to move.
        router: the current decision of the exchange.
        checkpoint: directory of the checkpoint; the same directory after a failure.
        progress: called with the number of rows of each micro-batch.

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
