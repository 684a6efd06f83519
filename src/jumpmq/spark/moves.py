"""Movement of keys and messages caused by a change of topology."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as total

from jumpmq.hashing import HashRing
from jumpmq.spark.router import Router
from jumpmq.spark.routing import route


@dataclass(frozen=True)
class Move:
    """Keys that move from a source to a target, and their messages."""

    source: str | None
    target: str | None
    keys: int
    messages: int


@dataclass(frozen=True)
class Movement:
    """Report on the movement.

    Attributes:
        moves: moves by source and target, most keys first.
        keys, messages: total numbers.
        moved_keys, moved_messages: numbers that would move.
        least: minimum share of keys that any hash function would have to move for shares by weight.
    """

    moves: list[Move]
    keys: int
    messages: int
    moved_keys: int
    moved_messages: int
    least: float

    @property
    def moved(self) -> float:
        """Share of the keys that would move, from 0 to 1."""
        return self.moved_keys / self.keys if self.keys else 0.0

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the moves as a DataFrame."""
        schema = "source string, target string, keys bigint, messages bigint"
        return spark.createDataFrame([vars(one) for one in self.moves], schema)


def movement(frame: DataFrame, key: str, before: Router | HashRing, after: Router | HashRing) -> Movement:
    """Count keys and messages by current and by future destination.

    Args:
        frame: a row per message.
        key: the column to hash.

    Raises:
        JumpMQError: the column does not exist.
    """
    first, second = (Router.of(one) if isinstance(one, HashRing) else one for one in (before, after))
    routed = route(route(frame, key, first, "_source"), key, second, "_target")
    keys = routed.groupBy("_source", "_target", key).agg(count("*").alias("_messages"))
    counts = keys.groupBy("_source", "_target").agg(count("*").alias("keys"), total("_messages").alias("messages"))
    rows = [Move(row["_source"], row["_target"], row["keys"], row["messages"]) for row in counts.collect()]
    moves = sorted((one for one in rows if one.source != one.target), key=lambda one: -one.keys)
    return Movement(
        moves,
        sum(one.keys for one in rows),
        sum(one.messages for one in rows),
        sum(one.keys for one in moves),
        sum(one.messages for one in moves),
        least_share(first, second),
    )


def least_share(before: Router, after: Router) -> float:
    """Return the minimum share of keys that must move: the sum of all gains in share; 1 if no destination is left."""
    if not after.destinations:
        return 1.0 if before.destinations else 0.0
    old, new = before.weights, after.weights
    was, becomes = sum(old.values()) or 1, sum(new.values()) or 1
    return sum(max(0.0, weight / becomes - old.get(name, 0) / was) for name, weight in new.items())
