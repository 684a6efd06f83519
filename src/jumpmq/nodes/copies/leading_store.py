"""The store of a leading replica. The store reports written and synced positions to the replica. The replica reports
the complete position to the store.
"""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from jumpmq.nodes.replicas.coming_files import known_losses
from jumpmq.nodes.replicas.copied_home import CopiedHome
from jumpmq.replication.lineage import Lineage, position_at, segment_at
from jumpmq.store import Store, StoreError
from jumpmq.store.completion import ByPosition, CompleteReceipt
from jumpmq.store.records import OPENING_SIZE
from jumpmq.store.staging import LINGER_BYTES

log = logging.getLogger(__name__)

POSITION = struct.Struct("=Q")

KEPT = 0.1
"""Seconds between two updates of the first segment that members need."""

POSITIONS_READ = 4096
"""Octets of positions per read; only the last position matters."""


class LeadingStore:
    """Opens the store of a home in an epoch, and connects the store with the replica. As for a store without copies,
    the owner of the store calls :meth:`Store.completed`.

    Args:
        home: the replica, after the call of :meth:`~jumpmq.nodes.replicas.copied_home.CopyOwner.serve`.
        epoch: epoch of the leading process.
        on_failure: called after a failed sync, when the process must end: copies may have octets that this disk lacks.
        segment_bytes: as for :meth:`Store.open`.
    """

    def __init__(
        self,
        home: CopiedHome,
        epoch: int,
        on_failure: Callable[[str], None],
        segment_bytes: int | None = None,
    ) -> None:
        self._home = home
        self._epoch = epoch
        self._on_failure = on_failure
        self._segment_bytes = segment_bytes
        self._completion = ByPosition(self._on_stored)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()  # the event loop's thread
        self._store: Store | None = None  # None before the opening and after the close
        self._positions_in, self._positions_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._positions_in.setblocking(False)
        self._positions_out.setblocking(False)
        self._stored = 0  # last commit on disk, not reported to the replica yet
        self._kept_at = 0.0  # time of the last update of the first needed segment
        self._rest = b""  # first octets of a partly received position
        self._known: set[str] = set()  # losses of this and the replaced copy, known before the opening

    def open(
        self,
        directory: Path,
        *,
        on_commit: Callable[[CompleteReceipt], None],
        on_error: Callable[[StoreError], None],
        linger_bytes: int = LINGER_BYTES,
    ) -> Store:
        """Open the store; see :class:`~jumpmq.broker.commit.commits.OpenStore`.

        Raises:
            StoreError: the store cannot be opened.
        """
        self._known = known_losses(directory)
        self._store = Store.open(
            directory,
            on_commit=on_commit,
            on_error=on_error,
            segment_bytes=self._segment_bytes,
            linger_bytes=linger_bytes,
            epoch=self._epoch,
            tell=self._positions_out.fileno(),
            ship=self._ship_ahead,
            completion=self._completion,
        )
        self._store.keep_from(self._home.needed_from)
        self._home.attach_store(self._segments, self.on_loss)
        self._loop.add_reader(self._positions_in.fileno(), self._on_written)
        return self._store

    @property
    def is_damaged(self) -> bool:
        """True if the store has found missing, damaged or unreadable data since it was opened."""
        return self._store is not None and any(loss not in self._known for loss, _ in self._store.losses.listed())

    def on_loss(self, loss: str) -> bool:
        """Note a loss; see :meth:`~jumpmq.nodes.replicas.copied_home.CopiedHome.attach_store`."""
        if (store := self._store) is None:
            return False
        store.losses.add(loss)
        return loss not in self._known and any(loss == one for one, _ in store.losses.listed())

    def apply(self, position: int) -> None:
        """Report a complete position to the store."""
        if self._store is not None:
            self._completion.complete(position)

    def close(self) -> None:
        """Detach from the closed store, and report the final end of the log to the replica."""
        if self._store is not None:
            self._on_written()
            self._tell_stored()
            self._store = None
            self._home.detach_store()
            self._loop.remove_reader(self._positions_in.fileno())
        self._positions_in.close()
        self._positions_out.close()

    def _ship_ahead(self, position: int, octets: bytes) -> bool:
        """Ship a commit before it is written, unless another thread is closing the store."""
        return threading.get_ident() == self._thread and self._home.ship_ahead(self._epoch, position, octets)

    def _segments(self) -> Lineage:
        assert self._store is not None
        self._keep()
        return self._store.lineage

    def _keep(self) -> None:
        """Report the segments needed by members to the store."""
        if self._store is not None and not self._store.is_closing:
            self._store.keep_from(self._home.needed_from)

    def _on_written(self) -> None:
        """Read the newest position reported by the writing thread."""
        try:
            octets = self._rest + self._positions_in.recv(POSITIONS_READ)
        except BlockingIOError:
            return
        whole = len(octets) // POSITION.size * POSITION.size
        self._rest = octets[whole:]
        if whole:
            (position,) = POSITION.unpack_from(octets, whole - POSITION.size)
            self._grow(position)

    def _on_stored(self, position: int) -> None:
        """Record a stored commit. The replica is notified later, after the store has processed the commit."""
        before, self._stored = self._stored, position
        if threading.get_ident() != self._thread:  # another thread is closing the store
            self._loop.call_soon_threadsafe(self._tell_stored)
        elif not before:
            self._loop.call_soon(self._tell_stored)

    def _tell_stored(self) -> None:
        if self._store is None or not self._stored:
            return
        try:
            position, self._stored = self._stored, 0
            self._grow(position)
            self._home.synced(position)
            if (now := self._loop.time()) - self._kept_at >= KEPT:
                self._kept_at = now
                self._keep()
        except Exception as error:
            log.critical("a step of a commit failed", exc_info=error)
            self._on_failure(f"commits cannot continue after {error!r}")

    def _grow(self, position: int) -> None:
        """Report the written position to the replica, segment by segment: the writing thread reports only its last
        position.
        """
        assert self._store is not None
        home, copy, segment = self._home, self._home.roles.copy, segment_at(position)
        if position_at(segment, 0) > copy.end:
            for stretch in self._store.lineage:
                if segment_at(copy.end) < stretch.segment <= segment:
                    home.begun(stretch._replace(end=OPENING_SIZE))
                if stretch.segment < segment and position_at(stretch.segment, stretch.end) > copy.end:
                    home.written(position_at(stretch.segment, stretch.end))
            home.note_kept()
        if position > copy.end:
            home.written(position)
