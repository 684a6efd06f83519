"""Sharding by policies, and names of shards: ``sharding: EXCHANGE - NODE - I``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_SHARDS = 10_000
"""Maximum number of shards per node and exchange, and of shards made by one change."""

MAX_NAME = 255
"""Maximum octets of a queue's name (AMQP 0-9-1, short strings)."""

_PREFIX, _BETWEEN = "sharding: ", " - "


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Sharding of an exchange.

    Attributes:
        count: number of shards per node.
        routing_key: binding key of the shards; None if the policy has none.
        single_active_consumer: True for one consumer at a time per shard.
        queue_type: kind of new shards, None for the default; existing shards keep their kind.
    """

    count: int
    routing_key: str | None = None
    single_active_consumer: bool = False
    queue_type: str | None = None

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "ShardSettings | None":
        """Parse a validated policy definition; None if it does not shard."""
        if "shards-per-node" not in definition:
            return None
        return cls(
            definition["shards-per-node"],
            definition.get("routing-key"),
            definition.get("single-active-consumer", False),
            definition.get("queue-type"),
        )


def shard_name(exchange: str, node: str, number: int) -> str:
    """Return the name of a shard."""
    return f"{_PREFIX}{exchange}{_BETWEEN}{node}{_BETWEEN}{number}"


@lru_cache(maxsize=256)
def shard_names(exchange: str, node: str, count: int) -> tuple[str, ...]:
    """Return the names of the first ``count`` shards."""
    return tuple(shard_name(exchange, node, number) for number in range(count))


def split_shard_name(queue: str) -> tuple[str, str, int] | None:
    """Return exchange, node (``NAME@HOST``, any) and number in a shard's name; None for another name, or a text of
    more than 255 characters.
    """
    node = queue.rpartition(_BETWEEN)[0].rpartition(_BETWEEN)[2]
    if len(queue) > MAX_NAME or "@" not in node or " " in node:
        return None
    parsed = parse_shard_name(queue, node)
    return None if parsed is None else (parsed[0], node, parsed[1])


def parse_shard_name(queue: str, node: str) -> tuple[str, int] | None:
    """Parse the name of a shard on ``node``: exchange and number; None for further queues."""
    if not queue.startswith(_PREFIX):
        return None
    start, _, number = queue.removeprefix(_PREFIX).rpartition(_BETWEEN)
    exchange = start.removesuffix(f"{_BETWEEN}{node}")
    if exchange == start or not number.isascii() or not number.isdigit() or number != str(int(number)):
        return None
    return exchange, int(number)
