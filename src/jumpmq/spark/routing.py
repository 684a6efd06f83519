"""Routing in Spark: the queue of every row, decided as the broker does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, element_at, lit, split
from pyspark.sql.pandas.functions import arrow_udf

from jumpmq.hashing import HashRing
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.router import Router

PRIVATE_USE = range(0xE000, 0xF900)
"""Characters without a meaning, in names and in regular expressions."""


def route(frame: DataFrame, key: str, ring: Router | HashRing, column: str = "queue") -> DataFrame:
    """Add a column with the destination.

    Args:
        key: the column that is hashed: text, octets, an integer or a timestamp.
        ring: of a live exchange (:meth:`Router.from_broker`), of a file of definitions, or made in Python.
        column: the name of the new column.

    Raises:
        JumpMQError: the column does not exist.
    """
    if key not in frame.columns:
        raise JumpMQError(f"there is no column '{key}'; there are {', '.join(frame.columns)}")
    return frame.withColumn(column, _destination(_router(ring), col(key)))


def route_messages(frame: DataFrame, router: Router) -> DataFrame:
    """Add the destination of messages as column ``queue``, by the exchange's hashed header, property or routing key.

    Args:
        frame: has the columns ``routing_key`` and ``amqp_properties``.
    """
    if router.hashed is None:
        return route(frame, "routing_key", router)
    decide = router.places_of_messages
    return frame.withColumn("queue", _destination(router, col("amqp_properties"), decide))


def register_route(spark: SparkSession, name: str, ring: Router | HashRing) -> None:
    """Register a SQL function from the key to the destination."""
    spark.udf.register(name, _function(_router(ring)))


def repartition_by_queue(frame: DataFrame, key: str, ring: Router | HashRing, column: str = "queue") -> DataFrame:
    """Add a column with the destination, and repartition so that a destination's rows are in one Spark partition.

    A join or a window over the same column then needs no further exchange of rows.
    """
    router = _router(ring)
    return route(frame, key, router, column).repartition(max(1, len(router.destinations)), col(column))


def _router(ring: Router | HashRing) -> Router:
    return Router.of(ring) if isinstance(ring, HashRing) else ring


def _destination(router: Router, key: Column, places: Callable[[pa.Array], pa.Array] | None = None) -> Column:
    """The destination of a key. What takes time is the way to Python and back, so a number comes back, and no text."""
    if not router.destinations:
        return lit(None).cast("string")
    found = places or router.places

    def decide(keys: pa.Array) -> pa.Array:
        return found(keys)

    decide.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    place: Callable[..., Column] = arrow_udf(decide, "int")  # type: ignore[call-overload]
    text = "".join(router.destinations)
    apart = next(sign for sign in map(chr, PRIVATE_USE) if sign not in text)
    return element_at(split(lit(apart.join(router.destinations)), apart), place(key) + 1)


def _function(router: Router) -> Callable[..., Column]:
    def decide(keys: pa.Array) -> pa.Array:
        return router.route(keys)

    # Given here, as Spark's reading of type hints does not know annotations that are kept as text.
    decide.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    found: Callable[..., Column] = arrow_udf(decide, "string")  # type: ignore[call-overload]
    return found
