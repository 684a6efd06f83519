"""Reserved messages as returned to readers: messages on disk are read in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import at_once
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import PAGED
from jumpmq.queues.parked import Parked
from jumpmq.queues.reservations import Piece, ReservationGone, Reservations, numbers_of
from jumpmq.queues.runs import of_body
from jumpmq.queues.stored_run import StoredRun
from jumpmq.store import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 2048
"""Number of messages with paged bodies read at once."""


class HeldPiece(NamedTuple):
    """Neighbouring messages of a reservation.

    Attributes:
        place: the reservations of the group in the queue.
        piece: the messages.
    """

    place: Reservations
    piece: Piece

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self.place.queue.name

    @property
    def readable(self) -> int:
        """Number of messages, without messages that were unreadable at the last read."""
        unreadable = self.place.unreadable
        return len(self.piece) - (len(unreadable.intersection(numbers_of(self.piece))) if unreadable else 0)


def with_bodies(
    pieces: list[HeldPiece], columns: Collection[str]
) -> Iterator[tuple[str, list[Message]] | tuple[str, pa.RecordBatch]]:
    """Yield the messages of pieces, with their queue names; messages on disk are read a few at a time.

    Unreadable messages are left out, and noted in :attr:`Reservations.unreadable`: the next answer announces the
    number of the others.

    Args:
        columns: names of columns; record batches have these and ``seq``, except for ``queue``.

    Raises:
        ReservationGone: messages have left the store since the pieces were chosen.
    """
    names = {"seq", *columns} - {"queue"}
    for one in pieces:
        try:
            yield from _read(one, names)
        except StoreError:
            raise ReservationGone(
                f"reserved messages of queue '{one.queue}' are gone: acknowledged meanwhile, or the queue was deleted"
            ) from None


def _read(held: HeldPiece, names: Collection[str]) -> Iterator[tuple[str, list[Message]] | tuple[str, pa.RecordBatch]]:
    piece, queue = held.piece, held.queue
    if isinstance(piece, Columns):
        _note(held.place, piece, None)
        yield queue, piece.record_batch(names)
    elif isinstance(piece, StoredRun):
        for part in piece.read():
            if isinstance(part, Columns):
                _note(held.place, part, None)
                yield queue, part.record_batch(names)
            else:
                _note(held.place, piece, part)
                yield queue, part
    else:
        yield from _with_paged_bodies(held.place, piece.messages() if isinstance(piece, Parked) else piece)


def _with_paged_bodies(place: Reservations, messages: list[Message]) -> Iterator[tuple[str, list[Message]]]:
    start = 0
    if not of_body(messages, PAGED):
        _note(place, messages, None)
        yield place.queue.name, messages
        return
    while start < len(messages):
        some = messages[start : start + AT_ONCE]
        some = some[: at_once(some)]
        start += len(some)
        taken = place.queue.taken
        found = some if taken is None else taken.readable(some)
        _note(place, some, found)
        yield place.queue.name, found


def _note(place: Reservations, wanted: Piece, found: list[Message] | None) -> None:
    """Note the unreadable messages of a read; ``found`` is None if all are readable."""
    if not place.unreadable and (found is None or len(found) == len(wanted)):
        return
    numbers = numbers_of(wanted)
    place.unreadable.difference_update(numbers)
    if found is not None:
        place.unreadable.update(set(numbers).difference([message.seq for message in found]))
