"""Copy of a home at this node. When the replica ends, the copy is closed and opened again.

When the replica becomes the leader, it gets a :class:`~jumpmq.nodes.copies.leading_store.LeadingStore`, and the
:class:`HomeServer` serves the home with that store.
"""

import asyncio
import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jumpmq.nodes.copies.leading_store import LeadingStore
from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.nodes.replicas.coming_files import DAMAGED, known_losses, set_aside, settle
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey
from jumpmq.nodes.replicas.copied_home import FIXED_SEAT, CopiedHome, CopyAlarms
from jumpmq.nodes.replicas.copy_directory import CopyDirectory, DamagedCopy
from jumpmq.nodes.replicas.offered_files import remove_offered
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.replication.configuration import ReplicaId
from jumpmq.replication.pace import Times
from jumpmq.store import losses, schema, stream_damage
from jumpmq.store.errors import StoreError

RETRY = 1.0
"""Delay in seconds before a copy is reopened. A full disk may have room by then."""

DOUBTED = "doubted"
"""Name of an empty file that marks a directory as a damaged copy, to be replaced by a copy from another node."""

ANNOUNCED = 2.0
"""Seconds from the detection of damage until the copy may be replaced: the damage may come from the leader's files, and
the leader announces its own damage within this time.
"""

LEFT = 8.0
"""Delay in seconds before a copy is reopened after a failure of the disk while the replica led, or was about to lead.
The delay exceeds the time for which other replicas wait for beats, so that another replica takes over.
"""

HAND_OVER_TIMEOUT = 5.0
"""Maximum wait for the answer to a hand-over, in seconds."""

log = logging.getLogger(__name__)


class HomeServer(Protocol):
    """Server of homes with a leading local replica."""

    def serve(self, copy: "KeptCopy") -> None:
        """Serve the home of a copy, with the ``leading`` store."""

    def fail(self, reason: str) -> None:
        """End the process at once: a served copy has failed, or a different node leads its home."""

    def spares(self, number: int) -> bool:
        """Return True if the home does not need this copy: another node leads the home, and the set has enough other
        copies.
        """

    def lacks(self, number: int, *, hides: bool) -> bool:
        """Return True if no other copy of the home is better than this damaged copy: the home then continues with it.

        Args:
            hides: as of :class:`~jumpmq.nodes.replicas.copy_directory.DamagedCopy`: True if the copy cannot be compared
                with others.
        """


class KeptCopy:
    """Keeps a copy open until cancelled.

    Args:
        number: number of the home.
        log_id: identity of the home's log.
        directory: directory of the copy.
        node: node of this process.
        key, sessions, times: as for :class:`~jumpmq.nodes.replicas.copied_home.CopiedHome`.
        server: serves the home while this copy's replica leads; None for a copy that never leads.

    Attributes:
        number, directory: the arguments.
        home: the replica; None while the copy is closed.
        leading: store of the home, from :meth:`serve` until the end of this replica's leadership.
        is_doubted: True if the copy is damaged, and will be replaced by a copy from another node.
        blocks: True if damage of this leading copy keeps another copy from joining.
        hides: True if damage keeps the copy from being compared with other copies, and thus from being opened.
    """

    def __init__(
        self,
        number: int,
        log_id: str,
        directory: Path,
        node: str,
        key: ConfigurationKey,
        sessions: ReplicaSessions,
        times: Times = FIXED_SEAT,
        server: HomeServer | None = None,
    ) -> None:
        self.home: CopiedHome | None = None
        self.leading: LeadingStore | None = None
        self._alarm = CopyAlarms(number)
        self.is_doubted = (directory / DOUBTED).exists()
        self._doubted_at = -math.inf  # time of the detection of damage, by the loop's clock
        self.blocks = self.hides = False
        self._marking: asyncio.Task[None] | None = None  # writes the file :data:`DOUBTED`
        self._failed = False  # True if a failure has closed the copy, or is closing it
        self._came: list[stream_damage.Expected] = []  # streams in received files that need a check
        self._checking: asyncio.Task[None] | None = None  # checks the streams in _came
        self.number, self.directory = number, directory
        self._log_id, self._node = log_id, node
        self._server = server
        self._key, self._sessions, self._times = key, sessions, times
        self._over = asyncio.Event()  # set at the end of the replica
        self._hands_over = False  # True if the end of the epoch is intended
        self._rest = 0.0  # seconds before the next opening

    async def keep(self) -> None:
        """Keep the copy open until cancelled."""
        while True:
            pause = RETRY
            try:
                await self._once()
                pause = RETRY if self._failed else 0.0
            except (StoreError, EtcdError, OSError) as error:
                self._tell(str(error))
                if isinstance(error, DamagedCopy):
                    await self._doubt()
            pause, self._rest = max(pause, self._rest), 0.0
            await asyncio.sleep(pause)

    async def _once(self) -> None:
        """Open the copy, and wait for the end of the replica."""
        self._over.clear()
        self._hands_over = self._failed = False
        if self._is_replaceable:
            log.error(
                "the copy of home %d in %s is replaced; the former data is in %s", self.number, self.directory, DAMAGED
            )
            await asyncio.to_thread(self._set_aside)
        directory = await self._opened()
        if directory.damage and not self.is_doubted:
            await self._doubt()
        try:
            home = CopiedHome(
                self.number, directory, self._node, self._key, self._sessions, self, self._times, self._alarm
            )
        except BaseException:
            await asyncio.to_thread(directory.close)
            raise
        try:
            await home.start()
            self.home = home
            if self._came:
                self._checking = asyncio.get_running_loop().create_task(self._check(self._came))
            await self._over.wait()
        finally:
            self.home = None
            if self._checking is not None:
                self._checking.cancel()
                self._checking = None
            await home.close()

    async def _opened(self) -> CopyDirectory:
        """Open the directory, in spite of damage if the home has no better copy."""
        self.hides = False
        try:
            return await asyncio.to_thread(self._open)
        except DamagedCopy as damage:
            self.hides = damage.hides
            if self._server is None or not self._server.lacks(self.number, hides=damage.hides):
                raise
        log.error("home %d goes on with a damaged copy, for want of a better one", self.number)
        await self._doubt()
        return await asyncio.to_thread(self._open, damaged=True)

    def _open(self, *, damaged: bool = False) -> CopyDirectory:
        if settle(self.directory):
            with contextlib.suppress(sqlite3.Error):  # the next indexing reports the error
                self._came = stream_damage.expected(self.directory / schema.FILE_NAME)
        remove_offered(self.directory)
        return CopyDirectory(self.directory, self._log_id, damaged=damaged)

    # --- damage ---

    @property
    def _is_replaceable(self) -> bool:
        if not self.is_doubted or asyncio.get_running_loop().time() - self._doubted_at < ANNOUNCED:
            return False
        return self._server is not None and self._server.spares(self.number)

    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        """Mark the copy as damaged. The leader's copy replaces it once the home does not need it.

        Args:
            blocks: True if the damage keeps another copy from joining.
        """
        if not self.is_doubted:
            self._doubted_at = asyncio.get_running_loop().time()
        self.is_doubted = True
        self.blocks |= blocks
        self._marking = asyncio.get_running_loop().create_task(self._doubt())

    async def _doubt(self) -> None:
        """Mark the directory as damaged, for the next process."""
        self.is_doubted = True
        with contextlib.suppress(OSError):  # without the file, only this process has the mark
            await asyncio.to_thread((self.directory / DOUBTED).touch)

    async def _check(self, came: Sequence[stream_damage.Expected]) -> None:
        """Check the received files of streams, because a leader with too few copies sends damaged files, too.

        Losses that were known before are only recorded: no better copy exists. A cancelled check is repeated at the
        next opening.
        """
        cancelled = threading.Event()  # without it, the end of the process would wait for the thread
        try:
            found = await asyncio.to_thread(lambda: [*stream_damage.lost(self.directory, came, cancelled.is_set)])
            if self.leading is not None:
                new = [loss for loss in found if self.leading.on_loss(loss)]
            else:
                known = await asyncio.to_thread(known_losses, self.directory)
                new = [loss for loss in found if loss not in known]
                await asyncio.to_thread(self._note, found)
        except (OSError, StoreError) as error:
            self._alarm(f"the streams of the copy in {self.directory} cannot be checked: {error}")
            return
        finally:
            cancelled.set()
        self._came = []
        if new:
            self._alarm(new[0])
            self.doubt(new[0])

    def _note(self, found: Sequence[str]) -> None:
        """Record losses, to be reported when the copy is served. The next check compares its losses with the record."""
        noted = losses.read(self.directory)
        if new := [loss for loss in found if loss not in dict(noted)]:
            losses.write(self.directory, [*noted, *((loss, time.time()) for loss in new)])

    def replace_if_damaged(self) -> None:
        """Close a damaged copy that the home does not need. The next opening sets the copy aside, and the leader fills
        a new one.
        """
        if self.home is not None and self.leading is None and self._is_replaceable:
            self._over.set()

    def _set_aside(self) -> None:
        set_aside(self.directory)
        (self.directory / DOUBTED).unlink(missing_ok=True)
        self.is_doubted = self.blocks = self.hides = False

    @property
    def trouble(self) -> str:
        """Last problem of the copy within a minute; empty without a problem."""
        return self._alarm.shown

    def _tell(self, reason: str) -> None:
        self._failed = True
        self._alarm(f"the copy in {self.directory}: {reason}")

    # --- serving ---

    async def release(self, target: ReplicaId | None = None, *, ends: bool = False, rest: float = 0.0) -> None:
        """Give up the home after its store was closed: any electable replica may lead at once. If no other replica
        becomes the leader, this replica claims a new epoch.

        Args:
            target: the replica that should lead next; None for the first replica with a claim.
            ends: True if the process ends, and has no time to wait.
            rest: seconds for which the copy stays closed, so that another replica can lead.
        """
        leading, self.leading = self.leading, None
        if leading is None or self.home is None:
            return
        leading.close()
        self._hands_over = True
        self._rest = rest
        if target is None or not self.home.hand_over(target):
            self.home.resign()
        if ends:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_TIMEOUT):
                await self._over.wait()
        self._over.set()

    # --- requests of the replica ---

    def apply(self, position: int) -> None:
        """Pass the complete position to the store of a leading replica."""
        if self.leading is not None:
            self.leading.apply(position)

    def serve(self, epoch: int) -> None:
        """Prepare the store of the epoch, and start serving the home with it."""
        assert self.home is not None
        if self._server is None:
            raise AssertionError("a copy without a server was made the leader")
        self.leading = LeadingStore(self.home, epoch, self._server.fail)
        self._server.serve(self)

    def close(self, reason: str) -> None:
        """End the process if it serves the home; otherwise reopen the copy, with the log unchanged."""
        self.stop(reason)

    def stop(self, reason: str) -> None:
        """End the process if it serves the home; otherwise reopen the copy."""
        hangs = self.home is not None and self.home.hangs  # a hanging thread cannot be joined
        if (self.leading is not None or hangs) and self._server is not None:
            self._server.fail(f"home {self.number} is no longer served here: {reason}")
            return
        if self._hands_over:
            log.info("home %d was handed over: %s", self.number, reason)
        else:
            self._tell(reason)
            self._leave()
        self._over.set()

    def _leave(self) -> None:
        """Close the copy for a while if the replica has claimed an epoch but cannot begin it. Another replica then
        claims the next epoch.
        """
        known = None if self.home is None else self.home.roles.known
        if self.home is not None and known is not None and known.leader == self.home.me:
            self._rest = LEFT

    def replaced(self) -> None:
        """Reopen the copy, which then consists of the received files."""
        log.info("the copy of home %d in %s was made from files", self.number, self.directory)
        self._over.set()
