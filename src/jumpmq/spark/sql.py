"""What SQL has of queues: a table function, and the broker's options in the session's configuration.

>>> spark.sql("SELECT queue, string(body) FROM jumpmq_queue('orders')")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from jumpmq.spark.options import BROKER_OPTIONS, NAMES
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource

FUNCTION = "jumpmq_queue"

PREFIX = "spark.jumpmq."
"""How the names begin that the broker's options have in the session's configuration."""


def configured(spark: SparkSession) -> dict[str, str]:
    """The broker's options that the session's configuration has."""
    names = [NAMES.get(name, name) for name in BROKER_OPTIONS]
    found = {name: spark.conf.get(f"{PREFIX}{name}", None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def register_function(spark: SparkSession, source: type[JumpMQDataSource]) -> None:
    """Make the table function ``jumpmq_queue(queues [, url => ...] [, vhost => ...])`` known to a session."""

    class QueueFunction:
        """Messages that are ready in queues, as a table has them; one task reads all."""

        def eval(
            self, queues: pa.Array, url: pa.Array | None = None, vhost: pa.Array | None = None
        ) -> Iterator[pa.Table]:
            given = {"queues": queues, "url": url, "vhost": vhost}
            options = {name: value[0].as_py() for name, value in given.items() if value is not None}
            reader = source(options).reader(SCHEMA)
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield pa.Table.from_batches([batch])

    spark.udtf.register(FUNCTION, cast(Any, arrow_udtf(QueueFunction, returnType=SCHEMA)))
