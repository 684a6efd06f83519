"""Transfer of files from a leader to members whose logs end before the leader's log begins: both ends, with a thread
for the disk.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from jumpmq.nodes.replicas.coming_files import ComingFiles
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.nodes.replicas.offered_files import OfferedFiles, damaged_segment
from jumpmq.queues.clock import boot_time
from jumpmq.replication.actions import Alarm, Send
from jumpmq.replication.configuration import ReplicaId, node_of
from jumpmq.replication.frames import Frame, Manifest, Piece, Want
from jumpmq.replication.joining import Clear, Install, JoinAction, Joining, Pages, Put, pages_of
from jumpmq.replication.lineage import Lineage, cut_to, from_segment, segment_at
from jumpmq.replication.replica import Replica
from jumpmq.store.background import Background
from jumpmq.store.log import relative_name

JOIN_RETRY = 5.0
"""Delay before a failed transfer starts again with a new manifest, in seconds."""

OFFERED = 60.0
"""Seconds after a member's last request for files during which the leader removes no segment."""

HELD = 60.0
"""Seconds in which a leader with damaged streams fills no copy, so that another replica becomes the leader."""

STALLED = 600.0
"""Seconds for which the leader keeps its log for a member that requests files without progress."""

log = logging.getLogger(__name__)


class DamagedOffer(Exception):
    """A file of the leader is damaged, and the set has copies to spare; the text names the file."""


class _FileOffer:
    """Files offered to a member, and the member's progress.

    A member whose transfer fails starts again, with a new manifest and the same files. An attempt therefore counts as
    progress only if the member receives more octets than in each earlier attempt.

    Attributes:
        files: the files.
    """

    def __init__(self, files: OfferedFiles) -> None:
        self.files = files
        self._asked = self._progressed = boot_time()  # times of the last request, and of the last new maximum
        self._got = self._most = 0  # octets of this attempt, and of the best one
        self._listed = 0.0  # start of the making of a manifest, which may take long; 0 otherwise

    @property
    def holds(self) -> bool:
        """True while the member may be receiving files: no segment may be removed."""
        return self.is_listed or (boot_time() - self._asked < OFFERED and not self.is_stalled)

    @property
    def is_stalled(self) -> bool:
        """True if the member requests files without progress."""
        return not self._listed and boot_time() - self._progressed >= STALLED

    @property
    def is_listed(self) -> bool:
        """True while a manifest is being made."""
        return self._listed > 0

    def on_want(self, want: Want) -> None:
        """Record a request."""
        now = boot_time()
        if now - self._asked >= OFFERED:  # the member was down meanwhile
            self._progressed, self._most = now, 0
        self._asked = now
        if not want.name:
            self._got = 0

    def list(self, begins: bool) -> None:
        """Record that a manifest is being made (True), or has been made (False)."""
        now = boot_time()
        if not begins:
            self._asked, self._progressed = now, self._progressed + now - self._listed
        self._listed = now if begins else 0.0

    def on_sent(self, octets: int) -> None:
        """Record the number of sent octets of a file."""
        self._got += octets
        if self._got > self._most:
            self._most, self._progressed = self._got, boot_time()


class Exchanging(Protocol):
    """The replica of a transfer.

    Attributes:
        number: number of the home.
        roles: the protocol.
        sealed, fills_damaged, on_loss: as of :class:`~jumpmq.nodes.replicas.copied_home.CopiedHome`.
    """

    number: int
    roles: Replica
    fills_damaged: bool
    on_loss: Callable[[str], bool]

    @property
    def sealed(self) -> Lineage | None: ...
    def send(self, peer: ReplicaId, frame: Frame) -> int: ...
    def drop(self, peer: ReplicaId) -> None: ...
    def pause(self, peer: ReplicaId, octets: int) -> float: ...
    def alarm(self, reason: str) -> None: ...
    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        """Mark the local copy as damaged. The copy is replaced once another replica leads the home.

        Args:
            blocks: True if the damage keeps a member from joining.
        """

    def pass_over(self, segment: int) -> None:
        """See :meth:`~jumpmq.nodes.replicas.copied_home.CopiedHome.pass_over`."""

    def on_file(self, error: Exception | None) -> None:
        """Handle the result of a write to a file."""

    def on_installed(self) -> None:
        """Handle the complete set of files. It replaces the copy when the copy is reopened."""


class FileExchange:
    """Sends the files of a leader's copy, and receives files for a member's copy.

    Args:
        home: the replica.
        directory: its copy.
    """

    def __init__(self, home: Exchanging, directory: CopyDirectory, silence: float) -> None:
        self._home = home
        self._silence = silence  # seconds without a frame until the files are asked for again
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._offered: dict[ReplicaId, _FileOffer] = {}
        self._joining: Joining | None = None  # the current transfer to this copy
        self._came = 0.0  # time of its last input or request
        self._pages = Pages()  # received pages of the manifest
        self._coming = ComingFiles(directory.directory)
        self._thread = Background("jumpmq-join", self._wake)
        self._is_closed = False
        self._checks = False  # True while the leader's log is being verified
        self._lost_since = 0.0  # time of the first damage found in streams; 0 without damage

    @property
    def offers(self) -> bool:
        """True while a member may be receiving files: no segment may be removed."""
        return any(offer.holds for offer in self._offered.values())

    def stop(self) -> None:
        """End all transfers."""
        self._is_closed = True

    def close(self) -> None:
        """Wait for the current disk operation, after :meth:`stop`. May block for the disk."""
        self._thread.close(deliver=False)

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._thread.deliver)

    # --- of a leader ---

    def on_want(self, peer: ReplicaId, want: Want) -> None:
        """Send a manifest, or a piece of a file, to a member."""
        home = self._home
        leader, copy = home.roles.leader, home.roles.copy
        if leader is None or leader.epoch != want.epoch:
            return
        if node_of(peer) not in leader.known.members:
            log.warning("home %d: %s wants files, and is of no member", home.number, peer)
            return
        if peer not in self._offered:
            files = OfferedFiles(self._directory.directory, peer.rpartition(".")[2], lambda: self._is_closed)
            self._offered[peer] = _FileOffer(files)
        offer = self._offered[peer]
        # From now on, segments that the index may not cover stay.
        offer.on_want(want)
        if offer.is_stalled:
            home.alarm(
                f"{peer} has asked for files for {STALLED / 60:g} minutes without getting more of them: consumed"
                " segments are no longer kept for that copy; look at the log and the disk of its node"
            )
        if (sealed := home.sealed) is None:
            return
        if not want.name:
            if offer.is_listed:
                return
            offer.list(begins=True)
        kept = copy.kept
        # Otherwise the damage is sent as it is: with fewer copies than its minimum, the home confirms nothing.
        is_spared = len(leader.known.set) > leader.known.min and not home.fills_damaged

        def read() -> Piece | Manifest:
            if want.name:
                return offer.files.piece(want.epoch, want.name, want.offset)
            if damaged := damaged_segment(self._directory.directory, sealed):
                on_damage(f"{relative_name(damaged)} is damaged")
            manifest = offer.files.manifest(want.epoch, kept, sealed)
            # A known loss is not the reason for a second change of the leader: all copies may have it.
            if found := [loss for loss in offer.files.lost() if home.on_loss(loss)]:
                self._lost_since = self._lost_since or boot_time()
                on_damage(found[0], refuses=boot_time() - self._lost_since < HELD)
            return manifest

        def on_damage(damage: str, *, refuses: bool = True) -> None:
            if is_spared and refuses:
                raise DamagedOffer(f"{damage}: another copy is to fill that of {node_of(peer)}")
            told = f"{damage}; the file goes to {node_of(peer)} as it is: no other copy can fill that one"
            self._loop.call_soon_threadsafe(home.doubt, told)

        def send(result: Piece | Manifest | Exception) -> None:
            if not want.name:
                offer.list(begins=False)
            if isinstance(result, DamagedOffer):
                home.doubt(str(result))
                home.drop(peer)
            elif isinstance(result, Exception):
                home.alarm(f"files for {peer} cannot be read: {result}")
                home.drop(peer)
            elif isinstance(result, Manifest):
                for page in pages_of(result):
                    home.send(peer, page)
            else:
                self._loop.call_later(home.pause(peer, len(result.octets)), send_piece, result)

        def send_piece(piece: Piece) -> None:
            if not self._is_closed and home.send(peer, piece):
                offer.on_sent(len(piece.octets))

        self._thread.run(read, send)

    def check(self, position: int) -> None:
        """Verify the leader's log, from the segment of a position on, after a follower refused octets as damaged.

        If the octets were damaged in transit only, the log is undamaged, and nothing is done.
        """
        if self._checks or self._is_closed:
            return
        self._checks = True
        copy = self._home.roles.copy
        lineage = from_segment(cut_to(copy.lineage, copy.complete), segment_at(position))

        def checked(result: int | Exception) -> None:
            self._checks = False
            if isinstance(result, Exception):
                self._home.alarm(f"the log cannot be checked: {result}")
            elif result and self._home.roles.leader is not None:
                self._home.doubt(f"{relative_name(result)} is damaged", blocks=True)
                if self._home.fills_damaged:
                    self._home.pass_over(result)

        self._thread.run(lambda: damaged_segment(self._directory.directory, lineage), checked)

    # --- of a member ---

    def want(self, source: ReplicaId, epoch: int) -> None:
        """Begin or continue a join by files, because the local log ends before the start of the leader's log."""
        before = self._joining
        if before is None or (before.source, before.epoch) != (source, epoch):
            log.info("home %d: files are taken from %s", self._home.number, source)
            self._joining = Joining(self._home.roles.copy, source, epoch, None if before is None else before.have)
        assert self._joining is not None
        self._came = boot_time()
        self._join(self._joining.start())

    def on_frame(self, peer: ReplicaId, frame: Manifest | Piece) -> None:
        """Process a page of a manifest, or a piece of a file, from the leader."""
        joining = self._joining
        if joining is None or peer != joining.source:
            return
        self._came = boot_time()
        if isinstance(frame, Piece):
            self._join(joining.on_piece(frame))
        elif (manifest := self._pages.add(frame)) is not None:
            self._join(joining.on_manifest(manifest))

    def tick(self) -> None:
        """Repeat an unanswered request. The leader had no manifest yet, or did not receive the request."""
        if self._joining is not None and not self._is_closed and boot_time() - self._came > self._silence:
            self._came = boot_time()
            self._join(self._joining.start())

    def _join(self, steps: Iterable[JoinAction]) -> None:
        """Perform steps of a join in order."""
        for step in steps:
            match step:
                case Send():
                    self._home.send(step.to, step.frame)
                case Alarm():
                    self._home.alarm(step.reason)
                    self._loop.call_later(JOIN_RETRY, self._begin_again, self._joining)
                    self._joining = None
                    # received files do not belong to the next manifest
                    self._coming = ComingFiles(self._directory.directory)
                case Put():
                    self._thread.run(partial(self._coming.put, step), self._home.on_file)
                case Clear():
                    self._thread.run(partial(self._coming.clear, step), self._home.on_file)
                case Install():
                    self._thread.run(partial(self._coming.install, step, self._directory.noted), self._on_installed)

    def _begin_again(self, given_up: Joining | None) -> None:
        """Start a new session with the leader, which will report again that the log ends before its own begins."""
        if given_up is not None and self._joining is None and not self._is_closed:
            self._home.drop(given_up.source)

    def _on_installed(self, result: Exception | None) -> None:
        self._home.on_file(result)
        if result is None and not self._is_closed:
            self._home.on_installed()
