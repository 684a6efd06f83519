"""Rights that a user needs for a change of definitions."""

from __future__ import annotations

from typing import Literal, NamedTuple

from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.users import Operation


class Right(NamedTuple):
    """Permission for an operation on a queue or exchange."""

    operation: Operation
    vhost: str
    kind: DestinationKind
    name: str


class TopicRight(NamedTuple):
    """Topic permission for a routing key at an exchange."""

    operation: Literal["write", "read"]
    exchange: Exchange
    key: bytes
