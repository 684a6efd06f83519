"""SQL access to queues: a table function, and the broker's options in the session's configuration.

>>> spark.sql("SELECT queue, string(body) FROM jumpmq_queue('orders')")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import BROKER_OPTIONS, NAMES
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource

FUNCTION = "jumpmq_queue"

PREFIX = "spark.jumpmq."
"""Prefix of the broker's options in the session's configuration."""


def configured(spark: SparkSession) -> dict[str, str]:
    """Return the broker's options in the session's configuration."""
    names = [NAMES.get(name, name) for name in BROKER_OPTIONS]
    found = {name: spark.conf.get(f"{PREFIX}{name}", None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _texts(arguments: dict[str, Any]) -> dict[str, str]:
    """Return a call's arguments as options of the source.

    Raises:
        JumpMQError: the queues are missing, or an argument is null or not text.
    """
    for name, value in ({"queues": None} | arguments).items():
        if not isinstance(value, str):
            raise JumpMQError(
                f"{FUNCTION} takes text as '{name}', not {'null' if value is None else value}: names of queues with "
                f"commas between, and perhaps url and vhost, as in {FUNCTION}('orders', url => 'http://...')"
            )
    return arguments


def register_function(spark: SparkSession, source: type[JumpMQDataSource]) -> None:
    """Register the table function ``jumpmq_queue(queues [, url => ...] [, vhost => ...])`` with a session."""

    class QueueFunction:
        """Ready messages of queues as a table; a single task reads all messages."""

        def eval(
            self, queues: pa.Array | None = None, url: pa.Array | None = None, vhost: pa.Array | None = None
        ) -> Iterator[pa.Table]:
            given = {"queues": queues, "url": url, "vhost": vhost}
            options = _texts({name: value[0].as_py() for name, value in given.items() if value is not None})
            reader = source(options).reader(SCHEMA)
            for partition in reader.partitions():
                for batch in reader.read(partition):
                    yield pa.Table.from_batches([batch])

    spark.udtf.register(FUNCTION, cast(Any, arrow_udtf(QueueFunction, returnType=SCHEMA)))
