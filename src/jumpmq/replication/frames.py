"""Frames between replicas of a home: octets on the connection, and their grammar.

A frame is ``octets of the rest (4), kind (1), home (4), epoch (8)``, then the payload. Numbers are unsigned and
big-endian, with their length in octets in parentheses. A text is its length (2) and UTF-8. A lineage is a count (4) and
as many segments: ``segment (8), epoch (8), salt (8), end (4)``. Files are a count (4), then names, lengths (8) and CRCs
(4). Octets of a file are the rest of the frame. The epoch is the epoch of the sending leader or candidate; in an
answer, the epoch of the answered leader or candidate (R6). The frames of a connection arrive in order, or not at all.

=========  =========  ==============================================================================================
kind       sent by    meaning
=========  =========  ==============================================================================================
HELLO      both       first frame of a connection: supported protocol versions, identity of the replica
LEAD       leader     asks to follow: lineage of its log, and the position from which on it still has all octets
MATCHED    follower   the log is a prefix of the leader's, synced up to this position; ship from here
REFUSED    both       a higher epoch was promised; the frame's epoch is that epoch
UNFIT      follower   does not follow: its log would lose complete commits, or needs files first
SEGMENT    leader     a segment begins at the log's end
DATA       leader     octets at a position
STORED     follower   the log is synced up to this position
COMPLETE   leader     the leader and all replicas of the set have synced the log up to this position
BEAT       leader     a sign of life, with the leader's clock in microseconds
BEATEN     follower   the answer, with the clock of the beat
LOST       leader     the follower's log is shorter than the follower had reported: its disk lost octets
RESIGN     leader     another replica may claim at once
ASK        candidate  asks for a promise and the lineage
ANSWER     follower   promise and lineage
FETCH      candidate  asks for octets from a position on
FETCHED    follower   all octets up to this position were sent
WANT       joiner     asks for a manifest (an empty name), or for a piece of a file from an offset on
MANIFEST   leader     a page of a copy: position from which on the copy has all octets; number of the page, of all
                      pages; segments of the lineage; name, length and CRC-32 of files
PIECE      leader     octets of a file: name, offset, CRC-32 of these octets; no octets if the file is gone
=========  =========  ==============================================================================================
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jumpmq.replication.lineage import Lineage, Stretch

VERSION = 1
"""Version of this protocol; HELLO carries the lowest and highest version spoken by a replica."""

MOST_OCTETS = (1 << 20) + (1 << 16)
"""Maximum octets of a frame after the length field: a piece of a megabyte, and the fields sent with the piece."""

HEAD = struct.Struct("!IBIQ")
"""Octets of the rest, kind, home, epoch."""

LENGTH = struct.Struct("!I")

NUMBERED = struct.Struct("!IBIQQ")
"""Head of a frame, and the number behind it."""

STRETCH = struct.Struct("!QQQI")
"""Segment, epoch, salt, end."""


class FrameError(ValueError):
    """Octets that are not a frame of this protocol; the connection ends."""


class UnknownFrame(FrameError):
    """A frame of a kind that a later release may have added; the connection goes on."""


class Hello(NamedTuple):
    epoch: int
    lowest: int
    highest: int
    replica: str


class Lead(NamedTuple):
    epoch: int
    kept: int
    lineage: Lineage


class Matched(NamedTuple):
    epoch: int
    position: int


class Refused(NamedTuple):
    epoch: int


class Unfit(NamedTuple):
    epoch: int
    needs_files: bool
    reason: str


class Segment(NamedTuple):
    epoch: int
    stretch: Stretch


class Data(NamedTuple):
    epoch: int
    position: int
    octets: bytes


class Stored(NamedTuple):
    epoch: int
    position: int


class Complete(NamedTuple):
    epoch: int
    position: int


class Beat(NamedTuple):
    epoch: int
    clock: int


class Beaten(NamedTuple):
    epoch: int
    clock: int


class Lost(NamedTuple):
    epoch: int
    position: int


class Resign(NamedTuple):
    epoch: int


class Ask(NamedTuple):
    epoch: int


class Answer(NamedTuple):
    epoch: int
    lineage: Lineage


class Fetch(NamedTuple):
    epoch: int
    position: int


class Fetched(NamedTuple):
    epoch: int
    position: int


class Want(NamedTuple):
    epoch: int
    name: str
    offset: int


class File(NamedTuple):
    name: str
    length: int
    crc: int


class Manifest(NamedTuple):
    """Manifest of a copy as files, or a page of a manifest; see :func:`~jumpmq.replication.joining.pages_of`."""

    epoch: int
    kept: int
    lineage: Lineage
    files: tuple[File, ...]
    page: int = 0
    pages: int = 1


class Piece(NamedTuple):
    epoch: int
    name: str
    offset: int
    crc: int
    octets: bytes


Frame = (
    Hello | Lead | Matched | Refused | Unfit | Segment | Data | Stored | Complete | Beat | Beaten | Lost | Resign | Ask
    | Answer | Fetch | Fetched | Want | Manifest | Piece
)  # fmt: skip


class Reader:
    """Decodes a payload from left to right."""

    def __init__(self, octets: bytes) -> None:
        self._octets, self._at = octets, 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._octets):
            raise FrameError(f"{end - len(self._octets)} octets of a frame are missing")
        taken, self._at = self._octets[self._at : end], end
        return taken

    def number(self, octets: int) -> int:
        return int.from_bytes(self.take(octets))

    def text(self) -> str:
        try:
            return self.take(self.number(2)).decode()
        except UnicodeDecodeError:
            raise FrameError("a text of a frame is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(len(self._octets) - self._at)

    def flag(self) -> bool:
        return self.number(1) != 0

    def stretch(self) -> Stretch:
        return Stretch(*STRETCH.unpack(self.take(STRETCH.size)))

    def lineage(self) -> Lineage:
        count = self.number(4)
        if count * STRETCH.size > len(self._octets):  # before a list of four billion is made
            raise FrameError(f"a frame with {count} segments does not have their octets")
        return tuple(self.stretch() for _ in range(count))

    def files(self) -> tuple[File, ...]:
        return tuple(File(self.text(), self.number(8), self.number(4)) for _ in range(self.number(4)))


def _number(octets: int) -> tuple[Callable[[Any], bytes], Callable[[Reader], Any]]:
    return lambda value: value.to_bytes(octets), lambda reader: reader.number(octets)


def _text_octets(value: str) -> bytes:
    octets = value.encode()
    return len(octets).to_bytes(2) + octets


def _lineage_octets(value: Lineage) -> bytes:
    return len(value).to_bytes(4) + b"".join(STRETCH.pack(*stretch) for stretch in value)


def _files_octets(value: tuple[File, ...]) -> bytes:
    files = (_text_octets(file.name) + file.length.to_bytes(8) + file.crc.to_bytes(4) for file in value)
    return len(value).to_bytes(4) + b"".join(files)


SHORT, WORD, LONG = _number(1), _number(4), _number(8)
FLAG = (lambda value: bytes([value]), Reader.flag)
TEXT = (_text_octets, Reader.text)
OCTETS = (bytes, Reader.rest)
STRETCHED = (lambda value: STRETCH.pack(*value), Reader.stretch)
LINEAGE = (_lineage_octets, Reader.lineage)
FILES = (_files_octets, Reader.files)

NUMBER = (LONG,)
"""Structure of most frames. These frames and :class:`Data` are coded in one step, because each commit needs several."""

TABLE: dict[int, tuple[type[Any], tuple[tuple[Callable[[Any], bytes], Callable[[Reader], Any]], ...]]] = {
    1: (Hello, (SHORT, SHORT, TEXT)),
    2: (Lead, (LONG, LINEAGE)),
    3: (Matched, NUMBER),
    4: (Refused, ()),
    5: (Unfit, (FLAG, TEXT)),
    6: (Segment, (STRETCHED,)),
    7: (Data, (LONG, OCTETS)),
    8: (Stored, NUMBER),
    9: (Complete, NUMBER),
    10: (Beat, NUMBER),
    11: (Beaten, NUMBER),
    12: (Lost, NUMBER),
    13: (Resign, ()),
    14: (Ask, ()),
    15: (Answer, (LINEAGE,)),
    16: (Fetch, NUMBER),
    17: (Fetched, NUMBER),
    18: (Want, (TEXT, LONG)),
    19: (Manifest, (LONG, LINEAGE, FILES, WORD, WORD)),
    20: (Piece, (TEXT, LONG, WORD, OCTETS)),
}
"""Frame types by number: the value class, and the encoder and decoder of each field after the epoch."""

KINDS = {value: kind for kind, (value, _) in TABLE.items()}


def encode(home: int, frame: Frame) -> bytes:
    """Return the octets of a frame."""
    kind = KINDS[type(frame)]
    structure = TABLE[kind][1]
    if structure is NUMBER:
        return NUMBERED.pack(NUMBERED.size - LENGTH.size, kind, home, *frame)
    if isinstance(frame, Data):
        length = NUMBERED.size - LENGTH.size + len(frame.octets)
        return NUMBERED.pack(length, kind, home, frame.epoch, frame.position) + frame.octets
    parts = [write(value) for (write, _), value in zip(structure, frame[1:], strict=True)]
    payload = b"".join(parts)
    return HEAD.pack(HEAD.size - LENGTH.size + len(payload), kind, home, frame.epoch) + payload


def decode(octets: bytes) -> tuple[int, Frame]:
    """Decode octets into a home and a frame.

    Raises:
        UnknownFrame: the frame has a kind of a later release.
        FrameError: the octets are not exactly one frame.
    """
    if len(octets) < HEAD.size:
        raise FrameError(f"a frame has {HEAD.size} octets at least, not {len(octets)}")
    length, kind, home, epoch = HEAD.unpack_from(octets)
    if length != len(octets) - LENGTH.size or length > MOST_OCTETS:
        raise FrameError(f"a frame of {length} octets is not what came: {len(octets) - LENGTH.size}")
    if kind not in TABLE:
        raise UnknownFrame(f"frames have no kind {kind}")
    value, structure = TABLE[kind]
    if structure is NUMBER and len(octets) == NUMBERED.size:
        return home, value(*NUMBERED.unpack(octets)[3:])
    if value is Data and len(octets) >= NUMBERED.size:
        _, _, _, epoch, number = NUMBERED.unpack_from(octets)
        return home, Data(epoch, number, octets[NUMBERED.size :])
    reader = Reader(octets[HEAD.size :])
    frame = value(epoch, *(read(reader) for _, read in structure))
    if reader.rest():
        raise FrameError(f"octets follow the payload of {value.__name__}")
    return home, frame


class Splitter:
    """Splits received octets of a connection into frames."""

    def __init__(self) -> None:
        self._octets = bytearray()

    def feed(self, octets: bytes) -> Iterator[tuple[int, Frame]]:
        """Yield the frames completed by the given octets.

        Raises:
            FrameError: the peer does not speak this protocol; the connection has to be closed.
        """
        self._octets += octets
        while len(self._octets) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._octets)
            if not HEAD.size - LENGTH.size <= length <= MOST_OCTETS:
                raise FrameError(f"a frame of {length} octets is out of bounds")
            end = LENGTH.size + length
            if len(self._octets) < end:
                return
            frame = bytes(self._octets[:end])
            del self._octets[:end]
            yield decode(frame)
