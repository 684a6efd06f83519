"""Reads the orders into a Parquet table, a batch every ten seconds, each order once, and prints how many there are."""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import jumpmq.spark


def main(directory: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jumpmq.spark.register(spark)
    orders = (
        spark.readStream.format("jumpmq")
        .option("url", os.environ["JUMPMQ_URL"])
        .option("exchange", "orders")
        .option("group", "table")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        path = f"{directory}/orders/batch={number}"  # a batch that is repeated replaces itself
        batch.selectExpr("queue", "seq", "string(routing_key) AS customer", "string(body) AS what").write.mode(
            "overwrite"
        ).parquet(path)
        print(f"batch {number}: {spark.read.parquet(path).count()} orders", flush=True)

    query = (
        orders.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(processingTime="10 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
