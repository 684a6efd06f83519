"""dbt over the messages of an exchange's queues: ``python run.py http://guest:guest@localhost:15672 orders``.

Requires ``pip install '/path/to/checkout[spark]' 'dbt-core>=1.9,<2' 'dbt-spark>=1.9,<2' sqlparams``.
"""

import sys
from pathlib import Path

from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession

import jumpmq.spark

HERE = Path(__file__).parent


def run(url: str, exchange: str, target: str = "target") -> None:
    """Run the models on the Spark session of this process."""
    spark = SparkSession.builder.getOrCreate()
    jumpmq.spark.register(spark)
    waiting = spark.read.format("jumpmq").option("url", url).option("exchange", exchange).load()
    waiting.createOrReplaceTempView("waiting_orders")
    given = ["--project-dir", str(HERE), "--profiles-dir", str(HERE), "--target-path", target, "--log-path", target]
    result = dbtRunner().invoke(["run", *given])
    if not result.success:
        raise SystemExit(1)


if __name__ == "__main__":
    run(*sys.argv[1:])
