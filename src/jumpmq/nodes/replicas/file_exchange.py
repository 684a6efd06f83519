"""Files between a leader and members whose logs end before its own begins: both ends, with their thread."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from jumpmq.nodes.replicas.coming_files import ComingFiles
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.nodes.replicas.offered_files import OfferedFiles
from jumpmq.queues.clock import boot_time
from jumpmq.replication.actions import Alarm, Send
from jumpmq.replication.configuration import Replica, node_of
from jumpmq.replication.frames import Frame, Manifest, Piece, Want
from jumpmq.replication.joining import Clear, Install, Joining, Put, Step
from jumpmq.replication.lineage import Lineage, segment_at
from jumpmq.replication.replica import Replica as Roles
from jumpmq.store.background import Background

FILES_SILENCE = 2.0
"""Seconds without a manifest or a piece until a member asks again."""

JOIN_RETRY = 5.0
"""Seconds until a join by files that was given up begins again, with another manifest."""

OFFERED = 60.0
"""Seconds after the last question for files in which a leader removes no segment."""

log = logging.getLogger(__name__)


class Exchanging(Protocol):
    """A replica that exchanges files.

    Attributes:
        number: of the home.
        roles: the protocol.
        segments: as of :class:`~jumpmq.nodes.replicas.copied_home.CopiedHome`.
    """

    number: int
    roles: Roles
    segments: Callable[[], Lineage] | None

    def send(self, peer: Replica, frame: Frame) -> int: ...
    def drop(self, peer: Replica) -> None: ...
    def alarm(self, reason: str) -> None: ...
    def on_file(self, error: Exception | None) -> None:
        """A file was written, or could not be."""

    def on_installed(self) -> None:
        """The files take the place of the copy when that is opened again."""


class FileExchange:
    """Files that a replica offers, or takes.

    Args:
        home: the replica.
        directory: its copy.
    """

    def __init__(self, home: Exchanging, directory: CopyDirectory) -> None:
        self._home = home
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._offered: dict[Replica, OfferedFiles] = {}
        self._offering = 0.0  # when a member last asked for files
        self._listing: set[Replica] = set()  # members for which a manifest is being made
        self._joining: Joining | None = None  # the join by files that is under way here
        self._came = 0.0  # when something of it came, or was asked for
        self._coming = ComingFiles(directory.directory)
        self._thread = Background("jumpmq-join", self._wake)
        self._is_closed = False

    @property
    def offers(self) -> bool:
        """True while a member may be taking files: no segment is to be removed."""
        return boot_time() - self._offering < OFFERED

    def stop(self) -> None:
        """Exchange no more files."""
        self._is_closed = True

    def close(self) -> None:
        """Wait for the files under way, after :meth:`stop`. May block for the disk."""
        self._thread.close(deliver=False)

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._thread.deliver)

    # --- of a leader ---

    def on_want(self, peer: Replica, want: Want) -> None:
        """Send a manifest, or a piece of a file, to a member."""
        home = self._home
        leader, copy, segments = home.roles.leader, home.roles.copy, home.segments
        if leader is None or leader.epoch != want.epoch or segments is None:
            return
        if node_of(peer) not in leader.known.members:
            log.warning("home %d: %s wants files, and is of no member", home.number, peer)
            return
        self._offering = boot_time()  # from now on no segment is removed that the index may not cover
        if not want.name:
            if peer in self._listing:
                return
            self._listing.add(peer)
        sealed = tuple(stretch for stretch in segments() if stretch.segment < segment_at(copy.complete))
        kept = copy.kept
        if peer not in self._offered:
            self._offered[peer] = OfferedFiles(self._directory.directory, peer.rpartition(".")[2])
        offered = self._offered[peer]

        def read() -> Frame:
            if want.name:
                return offered.piece(want.epoch, want.name, want.offset)
            return offered.manifest(want.epoch, kept, sealed)

        def send(result: Frame | Exception) -> None:
            if not want.name:
                self._listing.discard(peer)
            if isinstance(result, Exception):
                home.alarm(f"files for {peer} cannot be read: {result}")
                home.drop(peer)
            else:
                home.send(peer, result)

        self._thread.run(read, send)

    # --- of a member ---

    def want(self, source: Replica, epoch: int) -> None:
        """Begin a join by files, or go on with it: the log ends before the leader's begins."""
        before = self._joining
        if before is None or (before.source, before.epoch) != (source, epoch):
            log.info("home %d: files are taken from %s", self._home.number, source)
            self._joining = Joining(self._home.roles.copy, source, epoch, None if before is None else before.have)
        assert self._joining is not None
        self._came = boot_time()
        self._join(self._joining.start())

    def on_frame(self, peer: Replica, frame: Manifest | Piece) -> None:
        """Take a manifest, or a piece of a file, of the leader."""
        joining = self._joining
        if joining is not None and peer == joining.source:
            self._came = boot_time()
            self._join(joining.on_manifest(frame) if isinstance(frame, Manifest) else joining.on_piece(frame))

    def tick(self) -> None:
        """Ask again where nothing came: the leader had no files yet, or did not get the question."""
        if self._joining is not None and not self._is_closed and boot_time() - self._came > FILES_SILENCE:
            self._came = boot_time()
            self._join(self._joining.start())

    def _join(self, steps: Iterable[Step]) -> None:
        """Perform steps of a join in order."""
        for step in steps:
            match step:
                case Send():
                    self._home.send(step.to, step.frame)
                case Alarm():
                    self._home.alarm(step.reason)
                    self._loop.call_later(JOIN_RETRY, self._begin_again, self._joining)
                    self._joining = None
                    self._coming = ComingFiles(self._directory.directory)  # what has come is not of the next manifest
                case Put():
                    self._thread.run(partial(self._coming.put, step), self._home.on_file)
                case Clear():
                    self._thread.run(partial(self._coming.clear, step), self._home.on_file)
                case Install():
                    self._thread.run(partial(self._coming.install, step, self._directory.noted), self._on_installed)

    def _begin_again(self, given_up: Joining | None) -> None:
        """Meet the leader again, which says once more that the log ends before its own begins."""
        if given_up is not None and self._joining is None and not self._is_closed:
            self._home.drop(given_up.source)

    def _on_installed(self, result: Exception | None) -> None:
        self._home.on_file(result)
        if result is None and not self._is_closed:
            self._home.on_installed()
