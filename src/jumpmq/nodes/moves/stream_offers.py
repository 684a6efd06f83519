"""Sender of a stream's files to the home that copies them: pieces are read and sent on request.

The receiver bounds the pieces in flight (:data:`~jumpmq.nodes.moves.stream_copies.WINDOW`). The sender adds no piece
while a link has more than :data:`UNSENT` octets to send, so that other records get through between pieces.
"""

import asyncio
import os
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.moves.copy_records import Copied, CopyRequest
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import COPIED, COPY, FORGET, GIVEN, NUMBER, PIECE, WANT, WANTED
from jumpmq.queues.stream import Stream
from jumpmq.store.file_octets import FileOctets

UNSENT = 256 << 10
"""Octets waiting to be sent on a link, beyond which no piece is added."""

PAUSE = 0.002
"""Interval between checks of a full link, in seconds."""

LONG_PAUSE = 0.02
"""Interval between checks for an answer, in seconds."""

ASKED_AGAIN = 2.0
"""Delay before an unanswered request is repeated, in seconds."""


class CopyRefused(Exception):
    """The other home cannot copy the files; the text gives the reason."""


@dataclass
class _Offer:
    """Files offered to a home.

    Attributes:
        attempt: identifies the current request.
        answer: the home's answer to the current request.
        octets: octets sent in this run of the process.
    """

    stream: Stream
    attempt: str = ""
    answer: Copied | None = None
    octets: int = field(default=0)


class StreamOffers:
    """Sends the files of local streams to homes that copy the streams.

    Attributes:
        octets: octets sent in this run of the process.
    """

    def __init__(self, links: Links, turns: Turns) -> None:
        self.octets = 0
        self._links = links  # to all peers
        self._turns = turns  # those of the broker
        self._is_stopped = False  # True at the end of the process, when offers are kept for the next run
        self._offers: dict[int, _Offer] = {}  # by the stream's id here
        self._wanted: dict[Link, deque[tuple[int, int, int, int]]] = {}  # requested pieces, in order
        self._sending: dict[Link, asyncio.Task[None]] = {}  # tasks that send pieces
        links.handlers[WANT] = self._want
        links.handlers[COPIED] = self._copied

    def stop(self) -> None:
        """Stop sending; the next run of the process continues."""
        self._is_stopped = True
        for task in self._sending.values():
            task.cancel()

    async def copied(self, stream: Stream, home: int, to: int, tell: Callable[[int], object]) -> None:
        """Copy the current content of a stream to a home; return once it is on the home's disk.

        Args:
            to: id of the stream at the new home; 0 while this home serves the stream.
            tell: called repeatedly with the number of octets sent.

        Raises:
            CopyRefused: the home cannot copy the stream.
        """
        offer = self._offers[stream.id] = _Offer(stream)
        try:
            while True:
                before = stream.move.extents
                answer = await self._ask(offer, home, to, tell)
                if not answer.problem:
                    return
                # else retention deleted a segment meanwhile: copy again
                if not answer.is_gone or before[:1] == stream.move.extents[:1]:
                    raise CopyRefused(answer.problem)
        except asyncio.CancelledError:
            if not self._is_stopped:  # deleted, or cancelled by an operator; sent after the request on the same link
                self.forget(stream.id, home)
            raise
        finally:
            self._offers.pop(stream.id, None)

    async def _ask(self, offer: _Offer, home: int, to: int, tell: Callable[[int], object]) -> Copied:
        offer.attempt, offer.answer = os.urandom(8).hex(), None
        stream, loop, again = offer.stream, asyncio.get_running_loop(), 0.0
        question = CopyRequest(
            stream.id, offer.attempt, to, stream.move.extents, stream.move.handed if to else None
        ).encode()
        while offer.answer is None:
            tell(offer.octets)
            if loop.time() >= again and (link := self._links.to(home)) is not None:
                again = loop.time() + ASKED_AGAIN
                with self._turns.turn():
                    link.send(COPY, question)
            await asyncio.sleep(LONG_PAUSE)
        return offer.answer

    def forget(self, number: int, home: int) -> None:
        """Ask a home to delete the copied files of a stream."""
        if (link := self._links.to(home)) is not None:
            with self._turns.turn():
                link.send(FORGET, NUMBER.pack(number))

    def _copied(self, link: Link, payload: memoryview) -> None:
        answer = Copied.decode(payload)
        offer = self._offers.get(answer.number)
        if offer is not None and offer.attempt == answer.attempt:
            offer.answer = answer

    def _want(self, link: Link, payload: memoryview) -> None:
        wanted = self._wanted.setdefault(link, deque())
        wanted.append(WANTED.unpack(payload))
        if link not in self._sending:
            self._sending[link] = asyncio.get_running_loop().create_task(self._send(link, wanted))

    async def _send(self, link: Link, wanted: deque[tuple[int, int, int, int]]) -> None:
        try:
            while wanted and link.up:
                if link.unsent_octets > UNSENT:
                    await asyncio.sleep(PAUSE)
                    continue
                number, first, position, length = wanted.popleft()
                if (offer := self._offers.get(number)) is not None:
                    path = offer.stream.move.path_of(first)
                    is_there, octets, crc = await asyncio.to_thread(_piece, path, position, length)
                    offer.octets += len(octets)
                    self.octets += len(octets)
                    with self._turns.turn():
                        link.send(PIECE, GIVEN.pack(number, first, position, crc, is_there), octets)
        finally:
            del self._wanted[link], self._sending[link]


def _piece(path: Path, position: int, length: int) -> tuple[bool, bytes, int]:
    """Return whether the piece exists, its octets or the text of an error, and their CRC-32."""
    try:
        octets = FileOctets(path).read(position, length)
        problem = None if len(octets) == length else f"{path} has no {length} octets at {position}"
    except FileNotFoundError:
        octets, problem = b"", ""
    except OSError as error:
        octets, problem = b"", f"{path} cannot be read: {error.strerror or error}"
    octets = octets if problem is None else problem.encode()
    return problem is None, octets, zlib.crc32(octets)
