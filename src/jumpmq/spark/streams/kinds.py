"""Detection of streams among the queues to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jumpmq.spark.clients import ReadingClient, client_of
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions

STREAM = "stream"


def queue_names(client: ReadingClient, options: SourceOptions) -> list[str]:
    """Return the queues given by name or pattern; empty if the options name an exchange."""
    if options.pattern is not None:
        return [name for name in client.queues() if re.fullmatch(options.pattern, name)]
    return list(options.queues)


def reads_streams(options: SourceOptions, *, patient: bool = True) -> bool:
    """Return True if a streaming query reads streams, by offsets; False if it reads other queues, by reservations.

    If no queue exists, an option for a start position means streams.

    Args:
        patient: True to wait for queues at a node that is down.

    Raises:
        BrokerAway: the broker, or one of the queues, is down.
        JumpMQError: the query would read both, or has an option of streams for other queues.
    """
    client = client_of(options.broker if patient else replace(options.broker, retry_seconds=0))
    client.require_broker()
    found = client.ranges(options.exchange, queue_names(client, options), missing=True)
    kinds = {name: at["type"] for name, at in found.items() if at is not None}
    require_meant(kinds, options)
    streams = [name for name, kind in kinds.items() if kind == STREAM]
    if 0 < len(streams) < len(kinds):
        other = next(name for name in kinds if name not in streams)
        raise JumpMQError(
            f"'{streams[0]}' is a stream and '{other}' is of type {kinds[other]}: "
            "read streams and other queues by queries of their own"
        )
    return bool(streams) or (not kinds and options.starting_offsets is not None)


def require_meant(kinds: Mapping[str, str], options: SourceOptions) -> None:
    """Refuse options of streams for other queues.

    Raises:
        JumpMQError: an option of streams is given, and one of the queues is no stream.
    """
    given = {"startingOffsets": options.starting_offsets, "endingOffsets": options.ending_offsets}
    option = next((name for name, value in given.items() if value is not None), None)
    other = next((name for name, kind in kinds.items() if kind != STREAM), None)
    if option is not None and other is not None:
        raise JumpMQError(f"option '{option}' is for streams, and queue '{other}' is of type {kinds[other]}")


def require_only_streams(found: Mapping[str, dict[str, Any] | None]) -> None:
    """Refuse unless all existing queues are streams.

    Args:
        found: the broker's description of each queue; None for a queue that does not exist.

    Raises:
        JumpMQError: one of the queues is no stream.
    """
    other = next((name for name, at in found.items() if at is not None and at["type"] != STREAM), None)
    if other is not None:
        raise JumpMQError(f"'{other}' is no stream, and the query reads streams: read it by a query of its own")


def origin_of(options: SourceOptions, client: ReadingClient) -> dict[str, Any]:
    """Return the origin of rows for a checkpoint."""
    return {"broker": client.identity, "source": options.subject}


def require_same_origin(offset: Mapping[str, Any], options: SourceOptions, client: ReadingClient) -> None:
    """Refuse a checkpoint of a different source or broker, as positions are valid for their own source only.

    Older checkpoints without an origin are accepted.

    Raises:
        JumpMQError: the checkpoint is of another source or broker.
    """
    source, made_with = offset.get("source"), offset.get("broker")
    if source not in (None, options.subject):
        raise JumpMQError(
            f"the query's checkpoint is of {source}, but the query reads {options.subject}: "
            "give it a checkpoint of its own"
        )
    if made_with is not None and made_with != client.identity:
        raise JumpMQError("the query's checkpoint is of another broker: give it a checkpoint of its own")
