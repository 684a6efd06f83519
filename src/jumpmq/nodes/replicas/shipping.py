"""Shipping of a leader's log: reads the files, and sends each follower the octets from the follower's end on.

Followers get octets from the files, new and old commits alike: a lagging follower needs neither memory nor a lock.
Small new commits go out from memory, before the store's own write (:meth:`Shipping.ship_ahead`), if all followers have
everything before them. About :data:`WINDOW` octets are in flight to each follower.
"""

import asyncio
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Complete, Data, Fetched, Frame, Segment
from jumpmq.replication.lineage import Stretch, offset_at, position_at
from jumpmq.store.log import DIRECTORY, file_name, read_whole
from jumpmq.store.records import FRAME, MAGIC, OPENING_SIZE

PIECE = 512 << 10
"""Maximum octets of a frame."""

WINDOW = 8 << 20
"""Maximum octets in flight to a follower: sent, but not reported as stored."""

COMPLETE_INTERVAL = 0.02
"""Interval between frames with the complete position, in seconds."""

log = logging.getLogger(__name__)


class Shipping:
    """Ships the log of a copy: from a leader to followers, or from a follower to a candidate with a shorter log.

    Args:
        directory: directory of the home.
        copy: the shipped copy, with its lineage.
        send: sends a frame to a replica.
        send_all: sends a frame to several replicas.
        on_gone: called with a follower that needs octets which cannot be read.
        pause: returns the pause in seconds before the given octets are sent to a replica.
        window: see :data:`WINDOW`.
        piece: see :data:`PIECE`.
    """

    def __init__(
        self,
        directory: Path,
        copy: Copy,
        send: Callable[[ReplicaId, Frame], object],
        send_all: Callable[[Iterable[ReplicaId], Frame], object],
        on_gone: Callable[[ReplicaId, str], None],
        pause: Callable[[ReplicaId, int], float] = lambda peer, octets: 0.0,
        window: int = WINDOW,
        piece: int = PIECE,
    ) -> None:
        self._window, self._piece = window, piece
        self._directory = directory / DIRECTORY
        self._copy = copy
        self._send = send
        self._send_all = send_all
        self._on_gone = on_gone
        self._pause = pause
        self._followers: dict[ReplicaId, _Follower] = {}
        self._complete: dict[ReplicaId, Complete] = {}  # complete positions to be sent to followers
        self._telling: asyncio.TimerHandle | None = None

    def ship(self, peer: ReplicaId, position: int, epoch: int) -> None:
        """Ship to a replica from a position on, with all later writes."""
        self._begin(peer, _Follower(position, self._window), epoch)

    def fill(self, peer: ReplicaId, position: int, epoch: int) -> None:
        """Ship the current log to a candidate from a position on, and report its end."""
        self._begin(peer, _Follower(position, self._window, until=self._copy.end), epoch)

    def _begin(self, peer: ReplicaId, follower: "_Follower", epoch: int) -> None:
        self.stop(peer)
        self._followers[peer] = follower
        follower.task = asyncio.get_running_loop().create_task(self._run(peer, follower, epoch), name=f"ship to {peer}")

    def stop(self, peer: ReplicaId) -> None:
        """Stop shipping to a replica."""
        if (follower := self._followers.pop(peer, None)) is not None and follower.task is not None:
            follower.task.cancel()

    def stop_all(self) -> None:
        for peer in list(self._followers):
            self.stop(peer)
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def tell_complete(self, peer: ReplicaId, frame: Complete) -> None:
        """Send a follower the complete position soon. No client waits for the frame: one frame covers several
        commits.
        """
        self._complete[peer] = frame
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(COMPLETE_INTERVAL, self._tell_complete)

    def _tell_complete(self) -> None:
        self._telling = None
        frames, self._complete = self._complete, {}
        for peer, frame in frames.items():
            self._send(peer, frame)

    def written(self) -> None:
        """Note that the log has grown."""
        end = self._copy.end
        for follower in self._followers.values():
            if follower.at < end:
                follower.wake.set()

    def ship_ahead(self, position: int, octets: bytes, epoch: int) -> bool:
        """Ship a commit that is about to be written at a position, if all followers were sent the log up to the
        position.

        Otherwise no follower is sent the commit now: a follower has to receive earlier octets first, from the files.
        """
        followers = self._followers.values()
        if not followers or not all(follower.is_at(position) for follower in followers):
            return False
        self._send_all(self._followers, Data(epoch, position, octets))
        for follower in followers:
            follower.sent(len(octets))
            follower.commit_end = follower.at
        return True

    def stored(self, peer: ReplicaId, position: int) -> None:
        """Note that a replica has stored the log up to a position."""
        if (follower := self._followers.get(peer)) is not None:
            follower.stored(position)

    @property
    def positions(self) -> dict[ReplicaId, int]:
        """End of the log sent to each follower so far."""
        return {peer: follower.at for peer, follower in self._followers.items()}

    async def _run(self, peer: ReplicaId, follower: "_Follower", epoch: int) -> None:
        file = _OpenFile()
        try:
            while follower.at < follower.until:
                stretch = self._stretch_at(follower.at)
                # Cleared before the wait, without an `await` between: a wake-up that comes now is not lost.
                if stretch is None or follower.waits:
                    follower.wake.clear()
                    await follower.wake.wait()
                    continue
                if position_at(stretch.segment, 0) > follower.at or offset_at(follower.at) == 0:
                    follower.at = position_at(stretch.segment, 0)
                    self._send(peer, Segment(epoch, stretch._replace(end=0)))
                offset = offset_at(follower.at)
                length = min(self._piece, stretch.end - offset)
                if (pause := self._pause(peer, length)) > 0:
                    await asyncio.sleep(pause)
                descriptor = file.of(self._directory, stretch.segment)
                if stretch.segment == self._copy.lineage[-1].segment:
                    octets = read_whole(descriptor, length, offset)
                else:  # the octets may have to be read from the disk
                    octets = await asyncio.to_thread(read_whole, descriptor, length, offset)
                if len(octets) < length:
                    raise OSError(0, f"it ends at octet {offset + len(octets)}")
                octets = follower.follow_commits(octets)
                self._send(peer, Data(epoch, follower.at, octets))
                follower.sent(len(octets))
            self._send(peer, Fetched(epoch, follower.at))
        except OSError as error:
            self._on_gone(peer, f"segment {stretch.segment} cannot be read: {error.strerror}")  # type: ignore[union-attr]
        except Exception:
            log.exception("shipping to %s has failed", peer)
            self._on_gone(peer, "shipping has failed")
        finally:
            file.close()

    def _stretch_at(self, position: int) -> Stretch | None:
        """Return the first segment with octets behind a position."""
        found = None
        for stretch in reversed(self._copy.lineage):  # most followers are near the end
            if position_at(stretch.segment, stretch.end) <= position:
                break
            found = stretch
        return found


class _Follower:
    """Progress of shipping to a replica.

    Attributes:
        at: position up to which octets were sent.
        until: position at which shipping ends, for a candidate; infinite for a follower.
        unstored: octets in flight.
        commit_end: end of the last commit with sent octets.
        wake: set when there may be octets to send.
    """

    def __init__(self, at: int, window: int, until: float = math.inf) -> None:
        self.at = at
        self._window = window
        self.until = until
        self.commit_end = at  # a replica has whole commits, or the start of a segment
        self.unstored = 0
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._pieces: deque[tuple[int, int]] = deque()  # end and octets of each piece in flight

    @property
    def waits(self) -> bool:
        """True if the window is full. A replica stores whole commits; a candidate answers only at the end."""
        return self.unstored >= self._window and self.at == self.commit_end and self.until == math.inf

    def follow_commits(self, octets: bytes) -> bytes:
        """Track the ends of the commits in the next octets; return the octets without a truncated head of a commit."""
        if self.commit_end < self.at:  # in another segment
            self.commit_end = self.at
        end = self.at + len(octets)
        while self.commit_end < end:
            offset = self.commit_end - self.at
            if not offset_at(self.commit_end):
                self.commit_end += OPENING_SIZE
            elif len(octets) - offset >= FRAME.size:
                magic, _, _, length, _ = FRAME.unpack_from(octets, offset)
                # damaged octets are sent as they are: the replica refuses them
                self.commit_end = self.commit_end + FRAME.size + length if magic == MAGIC else end
            elif offset:
                return octets[:offset]
            else:
                self.commit_end = end
        return octets

    def sent(self, octets: int) -> None:
        self.at += octets
        self.unstored += octets
        self._pieces.append((self.at, octets))

    def is_at(self, position: int) -> bool:
        """True if the follower was sent everything up to a position within a segment, and can be sent more."""
        return self.at == position and not self.waits and self.until == math.inf

    def stored(self, position: int) -> None:
        waited = self.waits
        while self._pieces and self._pieces[0][0] <= position:
            self.unstored -= self._pieces.popleft()[1]
        if waited:
            self.wake.set()


class _OpenFile:
    """The open file of the current segment."""

    def __init__(self) -> None:
        self._segment, self._descriptor = 0, -1

    def of(self, directory: Path, segment: int) -> int:
        if segment != self._segment:
            self.close()
            self._descriptor = os.open(directory / file_name(segment), os.O_RDONLY | os.O_CLOEXEC)
            self._segment = segment
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._segment, self._descriptor = 0, -1
