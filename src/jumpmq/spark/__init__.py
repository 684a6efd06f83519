"""JumpMQ's queues as Spark tables and streams.

>>> import jumpmq.spark
>>> jumpmq.spark.register(spark)
>>> reader = spark.readStream.format("jumpmq").option("url", "http://guest:guest@localhost:15672")
>>> flights = reader.option("exchange", "flights").load()

The options are listed at :class:`jumpmq.spark.options.Options`, the columns at :data:`SCHEMA`.
"""

from pyspark.sql import SparkSession

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.schema import SCHEMA
from jumpmq.spark.source import JumpMQDataSource

__all__ = ["SCHEMA", "JumpMQDataSource", "JumpMQError", "register"]


def register(spark: SparkSession) -> None:
    """Make the format ``jumpmq`` known to a Spark session."""
    spark.dataSource.register(JumpMQDataSource)
