"""Messages between homes about copying a stream's files.

==========  ==============  ===================================================================================
``COPY``    from the old    what there is of each segment; asked again until it is answered
``WANT``    from the new    a piece of a segment
``PIECE``   from the old    its octets, or why they cannot be had
``COPIED``  from the new    all of that is on its disk, or why not
``FORGET``  from the old    the stream is not moved: what was copied is to be deleted
==========  ==============  ===================================================================================
"""

import json
from typing import NamedTuple, Self

from jumpmq.store.stream_bounds import HandedFiles
from jumpmq.store.stream_copy import Extent


class CopyRequest(NamedTuple):
    """Request for a home to copy a stream.

    Attributes:
        number: the id that the stream has at the old home.
        attempt: tells this request from others about the same stream.
        to: the id that the stream has at the new home; 0 while it serves at the old one.
        extents: what there is.
        handed: what the old home knows of it when nothing more comes there; None while it serves there.
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
        """As a record's payload."""
        handed = None if self.handed is None else self.handed.encode()
        return json.dumps([self.number, self.attempt, self.to, self.extents, handed], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Self:
        """From a record's payload."""
        number, attempt, to, extents, handed = json.loads(bytes(payload))
        return cls(
            number,
            attempt,
            to,
            [Extent(*one) for one in extents],
            None if handed is None else HandedFiles.decode(handed),
        )


class Copied(NamedTuple):
    """The answer.

    Attributes:
        number, attempt: of the request.
        problem: why it cannot be done; empty where it is.
        is_gone: whether that is because a file is not there any more.
    """

    number: int
    attempt: str
    problem: str = ""
    is_gone: bool = False

    def encode(self) -> bytes:
        """As a record's payload."""
        return json.dumps(self, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Self:
        """From a record's payload."""
        return cls(*json.loads(bytes(payload)))
