"""Unsettled deliveries of a channel, by delivery tag.

Deliveries are kept in pieces of some thousand tags. A single dictionary of ten million entries would stop the broker
for 200 ms when it grows and for 40 ms when it is freed, and could not be divided; pieces can be moved whole. If memory
is short, a piece with all its bodies on disk is parked. It is restored when one of its deliveries is needed.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import at_once
from jumpmq.queues.parked import Parked
from jumpmq.queues.runs import claim, claim_packed, split_upto

BITS = 12
"""Number of low bits of delivery tags within a piece: settling a piece takes one or two milliseconds."""

_TAG = struct.Struct("!Q")

WORTH_PARKING = 64
"""Minimum number of deliveries in a parked piece."""


class _ParkedPiece:
    """The tags and messages of a piece."""

    __slots__ = ("messages", "tags")

    def __init__(self, tags: list[int], messages: Parked) -> None:
        first, last = tags[0], tags[-1]
        self.tags = range(first, last + 1) if last - first + 1 == len(tags) else array("Q", tags)
        self.messages = messages

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tags)

    def __contains__(self, tag: int) -> bool:
        return tag in self.tags

    def taken_back(self) -> dict[int, Message]:
        return dict(zip(self.tags, self.messages.taken_back(), strict=True))


class Deliveries:
    """Deliveries in the order of tags."""

    __slots__ = ("_count", "_parked", "_pieces")

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, Message] | _ParkedPiece] = {}
        self._parked = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, tag: int) -> bool:
        piece = self._pieces.get(tag >> BITS)
        return piece is not None and tag in piece

    @property
    def first_tag(self) -> int | None:
        """The lowest tag."""
        return next((tag for piece in self._pieces.values() for tag in piece), None)

    def before(self, tag: int) -> Iterator[tuple[int, Message]]:
        """Yield deliveries with lower tags, in order, without parked ones."""
        for number, piece in self._pieces.items():
            if number << BITS >= tag:
                return
            if not isinstance(piece, _ParkedPiece):
                yield from (held for held in piece.items() if held[0] < tag)

    def unparked(self, count: int) -> Iterator[list[Message]]:
        """Yield all deliveries except parked ones, up to ``count`` at a time; deliveries may be added and taken between
        two steps."""
        for piece in list(self._pieces.values()):
            if isinstance(piece, _ParkedPiece):
                continue
            tags = list(piece)
            for start in range(0, len(tags), count):
                yield [piece[tag] for tag in tags[start : start + count] if tag in piece]

    def add(self, first: int, messages: list[Message]) -> None:
        """Append deliveries with tags from ``first`` on."""
        count, start = len(messages), 0
        self._count += count
        while start < count:
            number = first >> BITS
            piece = self._piece(number)
            if piece is None:
                piece = self._pieces[number] = {}
            stop = min(count, start + (number + 1 << BITS) - first)
            run = messages if stop - start == count else messages[start:stop]
            piece.update(zip(range(first, first + stop - start), run, strict=True))
            first, start = first + stop - start, stop

    def put(self, tags: Iterable[int], messages: Iterable[Message]) -> None:
        """Add deliveries with the given tags. They are in the given order until :meth:`put_back` sorts them."""
        for tag, message in zip(tags, messages, strict=False):
            number = tag >> BITS
            piece = self._piece(number)
            if piece is None:
                piece = self._pieces[number] = {}
            piece[tag] = message
            self._count += 1

    def put_back(self, taken: "Deliveries") -> None:
        """Move taken deliveries back to their positions."""
        for number, piece in list(taken._pieces.items()):
            if isinstance(piece, _ParkedPiece) and number not in self._pieces:
                self._pieces[number] = piece
                self._parked += 1
            else:
                merged = (self._piece(number) or {}) | (taken._piece(number) or {})
                self._pieces[number] = dict(sorted(merged.items()))
        self._pieces = dict(sorted(self._pieces.items()))
        self._count += taken._count
        taken._pieces, taken._parked, taken._count = {}, 0, 0

    # --- taking ---

    def claim(self, tags: list[int]) -> list[Message]:
        """Take the deliveries of the given tags, up to the first unknown tag."""
        if self._parked:
            self._unpark(tags)
        claimed = claim(self._pieces, tags, BITS)  # type: ignore[arg-type]
        self._count -= len(claimed)
        return claimed

    def claim_packed(self, packed: bytes, begin: int) -> list[Message]:
        """Take the deliveries with tags in ``packed[begin:]``, eight octets per tag; unknown tags are skipped."""
        if self._parked:
            self._unpark(tag for (tag,) in _TAG.iter_unpack(packed[begin:]))
        claimed = claim_packed(self._pieces, packed, begin, BITS)  # type: ignore[arg-type]
        self._count -= len(claimed)
        return claimed

    def take_upto(self, tag: int) -> "Deliveries":
        """Take all deliveries up to a tag; 0 takes all deliveries."""
        taken = Deliveries()
        for number in list(self._pieces):
            if tag and number > tag >> BITS:
                break
            if not tag or number < tag >> BITS:
                claimed = self._pieces.pop(number)
                parked = isinstance(claimed, _ParkedPiece)
                self._parked -= parked
                taken._parked += parked
            else:
                piece = self._piece(number) or {}
                claimed = split_upto(piece, tag)
                if not piece:
                    del self._pieces[number]
            if claimed:
                taken._pieces[number] = claimed
            taken._count += len(claimed)
        self._count -= taken._count
        return taken

    def take_of(self, consumers: Iterable[object]) -> tuple[list[int], list[Message]]:
        """Take the deliveries to these consumers. Return the tags, in order, and the messages."""
        theirs = set(map(id, consumers))
        found = [(tag, message) for tag, message in self.items() if id(message.consumer) in theirs]
        tags = [tag for tag, _ in found]
        return tags, self.claim(tags)

    def items(self) -> Iterator[tuple[int, Message]]:
        """Yield tags and deliveries, in order; the deliveries must not be changed meanwhile."""
        return chain.from_iterable([(self._piece(number) or {}).items() for number in list(self._pieces)])

    def messages(self) -> list[Message]:
        """Return the deliveries without tags, in order."""
        return list(chain.from_iterable([(self._piece(number) or {}).values() for number in list(self._pieces)]))

    def forwards(self) -> Iterator[list[Message]]:
        """Take all deliveries in steps, first to last; a step is limited by the bodies to read back."""
        while self._pieces:
            number = next(iter(self._pieces))
            piece = self._piece(number) or {}
            messages = list(piece.values())
            messages = messages[: at_once(messages)]
            if len(messages) == len(piece):
                del self._pieces[number]
            else:
                for tag in list(islice(piece, len(messages))):
                    del piece[tag]
            self._count -= len(messages)
            yield messages

    def backwards(self) -> Iterator[list[Message]]:
        """Take all deliveries in steps, last to first, in order within a step; limited as in :meth:`forwards`."""
        while self._pieces:
            number = next(reversed(self._pieces))
            piece = self._piece(number) or {}
            messages = list(piece.values())
            messages = messages[-at_once(messages, last=True) :]
            if len(messages) == len(piece):
                del self._pieces[number]
            else:
                for _ in messages:
                    piece.popitem()
            self._count -= len(messages)
            yield messages

    # --- parking ---

    def park(self) -> Iterator[None]:
        """Park deliveries piece by piece; deliveries may be added and taken between two steps."""
        for number, piece in list(self._pieces.items()):
            if isinstance(piece, dict) and len(piece) >= WORTH_PARKING and self._pieces.get(number) is piece:
                parked = Parked.of(list(piece.values()))
                if parked is not None:
                    self._pieces[number] = _ParkedPiece(list(piece), parked)
                    self._parked += 1
                yield

    def _unpark(self, tags: Iterable[int]) -> None:
        """Recreate message objects in the pieces of these tags."""
        for number in {tag >> BITS for tag in tags}:
            self._piece(number)

    def _piece(self, number: int) -> dict[int, Message] | None:
        """Return a piece with message objects; None if it does not exist."""
        piece = self._pieces.get(number)
        if isinstance(piece, _ParkedPiece):
            piece = self._pieces[number] = piece.taken_back()
            self._parked -= 1
        return piece
