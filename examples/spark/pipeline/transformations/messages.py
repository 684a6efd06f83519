"""Spark Declarative Pipelines: an exchange's messages become a table, exactly once, and a view counts them."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import jumpmq.spark

spark = SparkSession.active()
jumpmq.spark.register(spark)


@dp.table(table_properties={"pipelines.reset.allowed": "false"})  # a message is read only once
def messages() -> DataFrame:
    """All messages of the exchange so far, exactly once."""
    reader = spark.readStream.format("jumpmq").option("url", spark.conf.get("jumpmq.url"))
    return reader.option("exchange", spark.conf.get("jumpmq.exchange")).load()


@dp.materialized_view
def messages_by_queue() -> DataFrame:
    """Number of messages per queue."""
    return spark.read.table("messages").groupBy("queue").count()
