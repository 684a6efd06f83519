"""A store whose replica leads: the replica hears how far the log is written and synced, the store what is complete."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from jumpmq.nodes.copies.copied_home import CopiedHome
from jumpmq.replication.lineage import Lineage, position_at, segment_at
from jumpmq.store import Store, StoreError
from jumpmq.store.completion import ByPosition, CompleteReceipt
from jumpmq.store.records import OPENING_SIZE

log = logging.getLogger(__name__)

POSITION = struct.Struct("=Q")

POSITIONS_READ = 4096
"""Octets of positions read at once; only the last position matters."""


class LeadingStore:
    """Opens the store of a home in an epoch, and connects it with the replica.

    Args:
        home: the replica, told by :meth:`~jumpmq.nodes.copies.copied_home.Home.serve` that it leads.
        directory: of the home.
        epoch: in which it leads.
        on_commit, on_error, segment_bytes: as of :meth:`Store.open`.
        on_failure: called when the process has to end: copies may have what a failed sync left out of this disk.

    Attributes:
        store: the store.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(
        self,
        home: CopiedHome,
        directory: Path,
        epoch: int,
        *,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
        on_failure: Callable[[str], None],
        segment_bytes: int | None = None,
    ) -> None:
        self._home = home
        self._on_failure = on_failure
        self._completion = ByPosition(self._on_stored)
        self._told, self._tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._told.setblocking(False)
        self._tells.setblocking(False)
        self._stored = 0  # position behind the last commit on disk, where the replica has not heard of it
        self._rest = b""  # of a position that has come in part
        try:
            self.store = Store.open(
                directory,
                on_commit=on_commit,
                on_error=on_error,
                segment_bytes=segment_bytes,
                epoch=epoch,
                tell=self._tells.fileno(),
                completion=self._completion,
            )
        except BaseException:
            self._close_sockets()
            raise
        self.store.keep_from(home.needed_from)
        home.segments = self._segments
        loop = asyncio.get_running_loop()
        loop.add_reader(self._told.fileno(), self._on_written)
        loop.add_reader(self.store.fileno(), self._on_work)

    def reveal(self, position: int) -> None:
        """All up to a position is complete."""
        self._completion.complete(position)

    def _segments(self) -> Lineage:
        self.store.keep_from(self._home.needed_from)
        return self.store.lineage

    def _close_sockets(self) -> None:
        self._told.close()
        self._tells.close()

    def _on_work(self) -> None:
        try:
            self.store.completed()
            if self._stored:
                position, self._stored = self._stored, 0
                self._grow(position)
                self._home.synced(position)
            self.store.keep_from(self._home.needed_from)
        except Exception as error:
            log.critical("a step of a commit failed", exc_info=error)
            self._on_failure(f"commits cannot go on after {error!r}")

    def _on_written(self) -> None:
        """Read the newest of the positions told by the writing thread."""
        try:
            octets = self._rest + self._told.recv(POSITIONS_READ)
        except BlockingIOError:
            return
        whole = len(octets) // POSITION.size * POSITION.size
        self._rest = octets[whole:]
        if whole:
            (position,) = POSITION.unpack_from(octets, whole - POSITION.size)
            self._grow(position)

    def _on_stored(self, position: int) -> None:
        """Note that a commit is on disk. The store is in the middle of it: the replica hears of it afterwards."""
        self._stored = position

    def _grow(self, position: int) -> None:
        copy = self._home.roles.copy
        segment = segment_at(position)
        if position_at(segment, 0) > copy.end:
            begun = next(stretch for stretch in self.store.lineage if stretch.segment == segment)
            self._home.begun(begun._replace(end=OPENING_SIZE))
            self._home.note_kept()
        if position > copy.end:
            self._home.written(position)
