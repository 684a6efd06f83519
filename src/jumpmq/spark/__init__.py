"""JumpMQ's queues as Spark tables and streams.

>>> import jumpmq.spark
>>> jumpmq.spark.register(spark)
>>> reader = spark.readStream.format("jumpmq").option("url", "http://guest:guest@localhost:15672")
>>> flights = reader.option("exchange", "flights").load()

The options are listed at :class:`jumpmq.spark.options.SourceOptions`, the columns at :data:`SCHEMA`.
"""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.movement import movement
from jumpmq.spark.router import Router
from jumpmq.spark.routing import register_route, repartition_by_queue, route
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource
from jumpmq.spark.uniformity import uniformity

__all__ = [
    "SCHEMA",
    "JumpMQDataSource",
    "JumpMQError",
    "Router",
    "movement",
    "register",
    "register_route",
    "repartition_by_queue",
    "route",
    "uniformity",
]


def register(spark: SparkSession) -> None:
    """Make the format ``jumpmq`` known to a Spark session, and set it to push filters down to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    settings = {"parallelism": _parallelism(spark), "pushes_filters": True}
    spark.dataSource.register(type("RegisteredDataSource", (JumpMQDataSource,), settings))


def _parallelism(spark: SparkSession) -> int | None:
    """How many tasks the session runs at once; None where it does not tell, as over Spark Connect."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None
