"""JumpMQ's queues as Spark tables and streams.

>>> import jumpmq.spark
>>> jumpmq.spark.register(spark)
>>> reader = spark.readStream.format("jumpmq").option("url", "http://guest:guest@localhost:15672")
>>> flights = reader.option("exchange", "flights").load()

The options are listed at :class:`jumpmq.spark.options.SourceOptions`, the columns at :data:`SCHEMA`.

Names are imported on first use: Spark starts a process to plan each streaming query, which waits for what it imports.
"""

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from jumpmq.spark.delta import delta_writer
    from jumpmq.spark.errors import JumpMQError
    from jumpmq.spark.iceberg import iceberg_writer
    from jumpmq.spark.moves import movement
    from jumpmq.spark.router import Router
    from jumpmq.spark.routing import register_route, repartition_by_queue, route
    from jumpmq.spark.schema import SCHEMA
    from jumpmq.spark.source import JumpMQDataSource
    from jumpmq.spark.spread import uniformity

__all__ = [
    "SCHEMA",
    "JumpMQDataSource",
    "JumpMQError",
    "Router",
    "delta_writer",
    "iceberg_writer",
    "movement",
    "register",
    "register_route",
    "repartition_by_queue",
    "route",
    "uniformity",
]

_HOMES = {
    "SCHEMA": "schema",
    "JumpMQDataSource": "source",
    "JumpMQError": "errors",
    "Router": "router",
    "delta_writer": "delta",
    "iceberg_writer": "iceberg",
    "movement": "moves",
    "register_route": "routing",
    "repartition_by_queue": "routing",
    "route": "routing",
    "uniformity": "spread",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jumpmq.spark' has no attribute {name!r}")
    return getattr(import_module(f"jumpmq.spark.{_HOMES[name]}"), name)


def register(spark: SparkSession) -> None:
    """Make the format ``jumpmq`` known to a Spark session, and set it to push filters down to Python sources.

    Python workers run this interpreter, unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names another.
    """
    from jumpmq.spark.source import JumpMQDataSource

    _use_this_interpreter(spark)
    settings = {"parallelism": _parallelism(spark), "pushes_filters": _pushes_filters(spark)}
    spark.dataSource.register(type("RegisteredDataSource", (JumpMQDataSource,), settings))


def _use_this_interpreter(spark: SparkSession) -> None:
    """Spark's own default, ``python3``, is another one wherever the virtual environment is not activated."""
    with suppress(PySparkException):  # over Spark Connect, the server decides
        context = spark.sparkContext
        if "PYSPARK_PYTHON" not in os.environ and context.getConf().get("spark.pyspark.python") is None:
            context.pythonExec = sys.executable


def _pushes_filters(spark: SparkSession) -> bool:
    try:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    except PySparkException:  # in a declarative pipeline, which may not change its session
        return False
    return True


def _parallelism(spark: SparkSession) -> int | None:
    """How many tasks the session runs at once; None where it does not tell, as over Spark Connect."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None
