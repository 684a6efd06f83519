"""Messages as returned to readers: with paged bodies read in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import at_once
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import PAGED
from jumpmq.queues.parked import Parked
from jumpmq.queues.reservations import Piece
from jumpmq.queues.runs import of_body
from jumpmq.topology import VirtualHost

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 2048
"""Number of messages with paged bodies read at once."""


def with_bodies(
    host: VirtualHost, pieces: list[tuple[str, Piece]], columns: Collection[str]
) -> Iterator[tuple[str, list[Message]] | tuple[str, pa.RecordBatch]]:
    """Yield the messages of pieces, with their queue names; paged bodies are read a few at a time.

    Args:
        columns: names of columns; record batches have these and ``seq``, except for ``queue``.
    """
    names = {"seq", *columns} - {"queue"}
    for queue, piece in pieces:
        if isinstance(piece, Columns):
            yield queue, piece.record_batch(names)
            continue
        messages = piece.messages() if isinstance(piece, Parked) else piece
        start = 0
        if not of_body(messages, PAGED):
            yield queue, messages
            continue
        while start < len(messages):
            some = messages[start : start + AT_ONCE]
            some = some[: at_once(some)]
            start += len(some)
            taken = host.queues[queue].taken if queue in host.queues else None
            yield queue, some if taken is None else taken.readable(some)
