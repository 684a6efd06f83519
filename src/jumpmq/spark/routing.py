"""Routing in Spark: the destination of every row, the same as in the broker."""

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
"""Characters of Unicode's private use area: without a meaning in names and in regular expressions."""


def route(frame: DataFrame, key: str, ring: Router | HashRing, column: str = "queue") -> DataFrame:
    """Add a column with the destination.

    Args:
        key: the column to hash: text, octets, an integer or a timestamp.
        ring: the decision of a live exchange (:meth:`Router.from_broker`) or of a file of definitions
            (:meth:`Router.from_definitions`), or a ring made in Python.
        column: the name of the new column.

    Raises:
        JumpMQError: the column does not exist.
    """
    if key not in frame.columns:
        raise JumpMQError(f"there is no column '{key}'; there are {', '.join(frame.columns)}")
    return frame.withColumn(column, _destination(_router(ring), col(key)))


def route_messages(frame: DataFrame, router: Router) -> DataFrame:
    """Add the destination of messages as column ``queue``, by the header, property or routing key that the exchange
    hashes.

    Args:
        frame: messages, with the columns ``routing_key`` and ``amqp_properties``.
    """
    if router.hashed is None:
        return route(frame, "routing_key", router)
    decide = router.places_of_messages
    return frame.withColumn("queue", _destination(router, col("amqp_properties"), decide))


def register_route(spark: SparkSession, name: str, ring: Router | HashRing) -> None:
    """Register a SQL function that returns the destination of a key."""
    spark.udf.register(name, _function(_router(ring)))


def repartition_by_queue(frame: DataFrame, key: str, ring: Router | HashRing, column: str = "queue") -> DataFrame:
    """Add a column with the destination, and move the rows of each destination to one Spark partition.

    A join or a window over the same column then needs no further shuffle.
    """
    router = _router(ring)
    return route(frame, key, router, column).repartition(max(1, len(router.destinations)), col(column))


def _router(ring: Router | HashRing) -> Router:
    return Router.of(ring) if isinstance(ring, HashRing) else ring


def _destination(router: Router, key: Column, places: Callable[[pa.Array], pa.Array] | None = None) -> Column:
    """Return the destination of a key. The transfer from Python takes the time, so the function returns an index."""
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

    # Set here, because Spark cannot resolve annotations stored as text.
    decide.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    found: Callable[..., Column] = arrow_udf(decide, "string")  # type: ignore[call-overload]
    return found
