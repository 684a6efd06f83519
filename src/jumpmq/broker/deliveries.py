"""The deliveries of a channel that await what becomes of them, by delivery tag.

They lie in pieces of some thousand tags. One dictionary of ten million would stop everybody for 200 ms when it grows
and for 40 ms when it goes, and could not be cut in two; pieces change hands whole.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import claim, split_upto

BITS = 12
"""A piece has the tags that differ in so many low bits: to settle one takes a millisecond or two."""

PAGED_AT_ONCE = 32
"""Deliveries taken at once where their bodies have to be read back, which may be large."""


class Deliveries:
    """Deliveries by their tags, in order."""

    __slots__ = ("_count", "_pieces")

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, Message]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, tag: int) -> bool:
        piece = self._pieces.get(tag >> BITS)
        return piece is not None and tag in piece

    @property
    def first_tag(self) -> int | None:
        """The lowest tag."""
        return next((tag for tag, _ in self.items()), None)

    def look_at(self, count: int) -> Iterator[list[Message]]:
        """All of them, up to ``count`` at once; others may come and go meanwhile."""
        for piece in list(self._pieces.values()):
            tags = list(piece)
            for start in range(0, len(tags), count):
                yield [piece[tag] for tag in tags[start : start + count] if tag in piece]

    def add(self, first: int, messages: list[Message]) -> None:
        """Add deliveries behind all others, with the tags from ``first`` on."""
        count, start = len(messages), 0
        self._count += count
        while start < count:
            number = first >> BITS
            piece = self._pieces.get(number)
            if piece is None:
                piece = self._pieces[number] = {}
            stop = min(count, start + (number + 1 << BITS) - first)
            run = messages if stop - start == count else messages[start:stop]
            piece.update(zip(range(first, first + stop - start), run, strict=True))
            first, start = first + stop - start, stop

    def put_back(self, items: Iterable[tuple[int, Message]]) -> None:
        """Deliveries that were taken are here again, in their places."""
        for tag, message in items:
            self._pieces.setdefault(tag >> BITS, {})[tag] = message
            self._count += 1
        self._pieces = {number: dict(sorted(piece.items())) for number, piece in sorted(self._pieces.items())}

    # --- taking ---

    def claim(self, tags: list[int]) -> list[Message]:
        """Take the deliveries with these tags, up to the first tag that is unknown."""
        claimed = claim(self._pieces, tags, BITS)
        self._count -= len(claimed)
        return claimed

    def take_upto(self, tag: int) -> "Deliveries":
        """Take all deliveries up to a tag; 0 is simply all."""
        taken = Deliveries()
        for number in list(self._pieces):
            if tag and number > tag >> BITS:
                break
            piece = self._pieces[number]
            claimed = piece if not tag or number < tag >> BITS else split_upto(piece, tag)
            if claimed is piece or not piece:
                del self._pieces[number]
            if claimed:
                taken._pieces[number] = claimed
            taken._count += len(claimed)
        self._count -= taken._count
        return taken

    def items(self) -> Iterator[tuple[int, Message]]:
        """Tags and deliveries, in order; nothing else may be done with them meanwhile."""
        return (item for piece in self._pieces.values() for item in piece.items())

    def messages(self) -> list[Message]:
        """The deliveries without their tags, in order."""
        return list(chain.from_iterable([piece.values() for piece in self._pieces.values()]))

    def forwards(self) -> Iterator[list[Message]]:
        """Take all in steps, the first first."""
        while self._pieces:
            piece = self._pieces.pop(next(iter(self._pieces)))
            self._count -= len(piece)
            yield list(piece.values())

    def backwards(self) -> Iterator[list[Message]]:
        """Take all in steps, the last first; each step's are in order."""
        while self._pieces:
            number, piece = self._pieces.popitem()
            count = PAGED_AT_ONCE if next(reversed(piece.values())).body is PAGED else len(piece)
            messages = [piece.popitem()[1] for _ in range(min(count, len(piece)))][::-1]
            if piece:
                self._pieces[number] = piece
            self._count -= len(messages)
            yield messages
