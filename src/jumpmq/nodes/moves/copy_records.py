"""Messages between homes about copying a stream's files.

==========  ==============  ===================================================================================
``COPY``    from the old    the segments of the stream; repeated until answered
``WANT``    from the new    a request for a piece of a segment
``PIECE``   from the old    the octets of the piece, or the reason for not sending the piece
``COPIED``  from the new    all segments are on the new home's disk, or the reason for a failure
``FORGET``  from the old    the stream stays: delete the copied files
==========  ==============  ===================================================================================
"""

import json
from typing import NamedTuple, Self

from jumpmq.store.stream_bounds import HandedFiles
from jumpmq.store.stream_copy import Extent


class CopyRequest(NamedTuple):
    """Request of the old home: copy a stream.

    Attributes:
        number: id of the stream at the old home.
        attempt: identifies the request among all requests for the stream.
        to: id of the stream at the new home; 0 while the old home still serves the stream.
        extents: the segments of the stream.
        handed: the state of the stream after its last message at the old home; None while the old home serves the
            stream.
    """

    number: int
    attempt: str
    to: int
    extents: list[Extent]
    handed: HandedFiles | None

    @property
    def octets(self) -> int:
        """Octets of all files."""
        return sum(extent.size for extent in self.extents)

    def encode(self) -> bytes:
        """Return the encoded payload."""
        handed = None if self.handed is None else self.handed.encode()
        return json.dumps([self.number, self.attempt, self.to, self.extents, handed], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Self:
        """Decode a payload."""
        number, attempt, to, extents, handed = json.loads(bytes(payload))
        return cls(
            number,
            attempt,
            to,
            [Extent(*one) for one in extents],
            None if handed is None else HandedFiles.decode(handed),
        )


class Copied(NamedTuple):
    """Answer of the new home to a :class:`CopyRequest`.

    Attributes:
        number, attempt: as in the request.
        problem: reason for a failure; empty after success.
        is_gone: True if the copy failed because a file no longer exists.
    """

    number: int
    attempt: str
    problem: str = ""
    is_gone: bool = False

    def encode(self) -> bytes:
        """Return the encoded payload."""
        return json.dumps(self, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Self:
        """Decode a payload."""
        return cls(*json.loads(bytes(payload)))
