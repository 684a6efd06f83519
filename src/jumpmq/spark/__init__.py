"""JumpMQ's queues as Spark tables and streams.

>>> import jumpmq.spark
>>> jumpmq.spark.register(spark)
>>> reader = spark.readStream.format("jumpmq").option("url", "http://guest:guest@localhost:15672")
>>> flights = reader.option("exchange", "flights").load()

The options are listed at :class:`jumpmq.spark.options.SourceOptions`, the columns at :data:`SCHEMA`.

Names are imported on first use: Spark starts a process to plan each streaming query, and the query waits for the
imports of that process.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jumpmq._first_use import import_name

if TYPE_CHECKING:
    from jumpmq.spark.avro import from_avro
    from jumpmq.spark.constants import check_rows
    from jumpmq.spark.delta import delta_writer
    from jumpmq.spark.errors import JumpMQError, plain_errors
    from jumpmq.spark.explaining import explain
    from jumpmq.spark.iceberg import iceberg_writer
    from jumpmq.spark.metrics import Exporter, progress
    from jumpmq.spark.moves import movement
    from jumpmq.spark.protobuf import from_protobuf
    from jumpmq.spark.router import Router
    from jumpmq.spark.routing import register_route, repartition_by_queue, route
    from jumpmq.spark.schema import SCHEMA
    from jumpmq.spark.source import JumpMQDataSource
    from jumpmq.spark.spread import uniformity
    from jumpmq.spark.verifying import verify

__all__ = [
    "SCHEMA",
    "Exporter",
    "JumpMQDataSource",
    "JumpMQError",
    "Router",
    "check_rows",
    "delta_writer",
    "explain",
    "from_avro",
    "from_protobuf",
    "iceberg_writer",
    "movement",
    "plain_errors",
    "progress",
    "register",
    "register_route",
    "repartition_by_queue",
    "route",
    "uniformity",
    "verify",
]

_HOMES = {
    "SCHEMA": "jumpmq.spark.schema",
    "JumpMQDataSource": "jumpmq.spark.source",
    "JumpMQError": "jumpmq.spark.errors",
    "Router": "jumpmq.spark.router",
    "check_rows": "jumpmq.spark.constants",
    "delta_writer": "jumpmq.spark.delta",
    "explain": "jumpmq.spark.explaining",
    "from_avro": "jumpmq.spark.avro",
    "from_protobuf": "jumpmq.spark.protobuf",
    "iceberg_writer": "jumpmq.spark.iceberg",
    "Exporter": "jumpmq.spark.metrics",
    "movement": "jumpmq.spark.moves",
    "plain_errors": "jumpmq.spark.errors",
    "progress": "jumpmq.spark.metrics",
    "register_route": "jumpmq.spark.routing",
    "repartition_by_queue": "jumpmq.spark.routing",
    "route": "jumpmq.spark.routing",
    "uniformity": "jumpmq.spark.spread",
    "verify": "jumpmq.spark.verifying",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def register(spark: SparkSession) -> None:
    """Register the format ``jumpmq`` and the SQL function ``jumpmq_queue`` with a Spark session.

    Queries without option ``url`` take the broker's options (``url``, ``vhost`` and others) from the session's
    configuration at the time of this call: ``spark.jumpmq.url``, ``spark.jumpmq.vhost``, ….

    Python workers run the interpreter of this process, unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names
    another.
    """
    from jumpmq.spark.interpreter import use_this_interpreter
    from jumpmq.spark.source import JumpMQDataSource
    from jumpmq.spark.sql import configured, register_function
    from jumpmq.spark.starting import listen

    with suppress(PySparkException):  # over Spark Connect, the server decides
        use_this_interpreter(spark.sparkContext)
        listen(spark)
    settings = {"parallelism": _parallelism(spark), "session": configured(spark)}
    source = type("RegisteredDataSource", (JumpMQDataSource,), settings)
    spark.dataSource.register(source)
    register_function(spark, source)


def _parallelism(spark: SparkSession) -> int | None:
    """Return the number of tasks that the session runs at once; None over Spark Connect, as unknown."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None
