"""Chunks of a stream from another home, imported into the log of this home.

In a home with copies, files beside the log would be on one disk alone. A stream that moves to such a home is therefore
written through the log, octet for octet and in steps, and all copies make the stream's files from the log. The stream's
directory keeps the stream's number at the previous home. A record of kind
:data:`~jumpmq.store.kinds.STREAM_SOURCE` has this number.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

from jumpmq.store.stream_bounds import HandedFiles
from jumpmq.store.stream_segment import ALIGNMENT, HEADER, MAGIC_OCTETS, ChunkPlace

MOST_OCTETS = 1 << 30
"""Maximum octets of a chunk; a header with a larger length is damaged."""


class StreamOrigin(NamedTuple):
    """Origin of a stream.

    Attributes:
        number: number of the stream at the previous home, and of the stream's directory.
        handed: the previous home's information on the stream; None while the previous home serves the stream, and after
            the information was used.
        end: offset behind the stream's last message at the previous home. The message itself may be lost.
    """

    number: int
    handed: HandedFiles | None = None
    end: int = 0

    def encode(self) -> str:
        """Return the origin as JSON text."""
        return json.dumps([self.number, None if self.handed is None else self.handed.encode(), self.end])

    @classmethod
    def decode(cls, text: str) -> StreamOrigin:
        """Return the origin in a record's JSON text."""
        number, handed, end = json.loads(text)
        return cls(number, None if handed is None else HandedFiles.decode(handed), end)


class ImportedChunk(NamedTuple):
    """A whole chunk of another home.

    Attributes:
        place: location of the chunk. The position in this home's files may differ.
        octets: octets of the chunk, header and padding included.
        begins: True if a segment begins with the chunk.
    """

    place: ChunkPlace
    octets: bytes
    begins: bool


class ChunkCutter:
    """Cuts the octets of a segment, which come in pieces, into whole chunks.

    A new segment begins after damage, so that the chunks of each file are contiguous.

    Args:
        end: offset of the next message; earlier chunks are left out.
        begins: True if a segment begins with the first chunk.
        salt: salt of the segment; 0 before the first chunk.

    Attributes:
        is_damaged: True if damaged octets were left out.
    """

    def __init__(self, end: int, *, begins: bool, salt: int = 0) -> None:
        self.is_damaged = False
        self._end, self._begins, self._salt = end, begins, salt
        self._left = bytearray()  # octets of a chunk that is incomplete so far
        self._skipped = 0  # number of octets before _left, modulo the alignment of chunks

    def add(self, octets: bytes, *, last: bool) -> list[ImportedChunk]:
        """Add octets; return the chunks completed by them.

        Args:
            last: True if the segment ends with these octets.
        """
        self._left += octets
        found, at = [], 0
        while at < len(self._left):
            length = self._length_at(at)
            if length > len(self._left) - at and not last:
                break
            chunk = self._chunk_at(at, length) if length else None
            if chunk is None:
                at = self._next_magic(at)
                self.is_damaged = self._begins = True
                continue
            if (first := chunk.place.first) >= self._end:
                found.append(chunk._replace(begins=self._begins or first > self._end))
                self._end, self._begins = first + chunk.place.message_count, False
            self._salt = chunk.place.salt
            at += length
        self._skipped = (self._skipped + at) % ALIGNMENT
        del self._left[:at]
        return found

    def _length_at(self, at: int) -> int:
        """Return the octets of the chunk at a position, according to its header; 0 if no chunk begins there."""
        if self._left[at : at + 4] != MAGIC_OCTETS[: len(self._left) - at]:
            return 0
        if len(self._left) - at < HEADER.size:
            return HEADER.size
        _, _, length, *_ = HEADER.unpack_from(self._left, at)
        return HEADER.size + length + -length % ALIGNMENT if length <= MOST_OCTETS else 0

    def _chunk_at(self, at: int, length: int) -> ImportedChunk | None:
        octets = bytes(self._left[at : at + length])
        if len(octets) < length:
            return None
        _, crc, size, rows, first, first_time, last_time, commit, salt, _ = HEADER.unpack_from(octets)
        is_whole = zlib.crc32(memoryview(octets)[8 : HEADER.size + size]) == crc
        if not (is_whole and rows and self._salt in (0, salt)):
            return None
        place = ChunkPlace(first, rows, 0, length, first_time, last_time, commit, salt)
        return ImportedChunk(place, octets, begins=False)

    def _next_magic(self, at: int) -> int:
        """Return the next position behind the given one at which a chunk may begin."""
        at = behind = at + 1
        while (at := self._left.find(MAGIC_OCTETS, at)) >= 0 and (self._skipped + at) % ALIGNMENT:
            at += 1
        # The last three octets may begin the next chunk.
        return max(behind, len(self._left) - 3) if at < 0 else at
