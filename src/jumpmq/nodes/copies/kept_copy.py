"""Copy of another node's home. A replica that ends is replaced: the copy is closed and opened again."""

import asyncio
import logging
from pathlib import Path

from jumpmq.nodes.copies.claims import Claims
from jumpmq.nodes.copies.coming_files import settle
from jumpmq.nodes.copies.copied_home import FIXED_SEAT, CopiedHome
from jumpmq.nodes.copies.copy_directory import CopyDirectory
from jumpmq.nodes.copies.sessions import ReplicaSessions
from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.replication.pace import Times
from jumpmq.store.errors import StoreError

RETRY = 1.0
"""Seconds before a copy that ended is opened again: a full disk may have room by then."""

log = logging.getLogger(__name__)


class KeptCopy:
    """Keeps a copy until it is cancelled.

    Args:
        number: of the home.
        log_id: identity of the home's log.
        directory: of the copy.
        node: of this process.
        claims, sessions, times: as of :class:`~jumpmq.nodes.copies.copied_home.CopiedHome`.

    Attributes:
        home: the replica; None while the copy is closed.
        trouble: why it is closed; empty while all is well.
    """

    def __init__(
        self,
        number: int,
        log_id: str,
        directory: Path,
        node: str,
        claims: Claims,
        sessions: ReplicaSessions,
        times: Times = FIXED_SEAT,
    ) -> None:
        self.home: CopiedHome | None = None
        self.trouble = ""
        self._number, self._log_id, self._directory, self._node = number, log_id, directory, node
        self._claims, self._sessions, self._times = claims, sessions, times
        self._over = asyncio.Event()  # set when the replica ended

    async def keep(self) -> None:
        """Keep the copy."""
        while True:
            pause = RETRY
            try:
                await self._once()
                pause = RETRY if self.trouble else 0.0
            except (StoreError, EtcdError, OSError) as error:
                self._tell(str(error))
            await asyncio.sleep(pause)

    async def _once(self) -> None:
        """Open the copy, and wait for its end."""
        self._over.clear()
        directory = await asyncio.to_thread(self._open)
        try:
            home = CopiedHome(
                self._number, directory, self._node, self._claims, self._sessions, self, times=self._times
            )
        except BaseException:
            directory.close()
            raise
        try:
            await home.start()
            self.home, self.trouble = home, ""
            await self._over.wait()
        finally:
            self.home = None
            home.stop()

    def _open(self) -> CopyDirectory:
        settle(self._directory)
        return CopyDirectory(self._directory, self._log_id)

    def _tell(self, reason: str) -> None:
        if reason != self.trouble:
            log.error("the copy of home %d in %s: %s", self._number, self._directory, reason)
        self.trouble = reason

    # --- what the replica asks for ---

    def reveal(self, position: int) -> None:
        """Nothing here waits for what is complete."""

    def serve(self, epoch: int) -> None:
        """A home is served at its seat."""
        raise AssertionError("a copy was made leader, and homes are served at their seats")

    def close(self, reason: str) -> None:
        """No store is open."""

    def stop(self, reason: str) -> None:
        """Open the copy again."""
        self._tell(reason)
        self._over.set()

    def replaced(self) -> None:
        """Open the files that have come instead of the copy."""
        log.info("the copy of home %d in %s was made from files", self._number, self._directory)
        self._over.set()
