"""Runs a replica of a home: performs its actions on disk, links and etcd, and drives its clock."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.nodes.replicas.commit_checks import DamagedCommit, Incoming
from jumpmq.nodes.replicas.configuration_key import ConfigurationKey, ConfigurationRequests
from jumpmq.nodes.replicas.copy_directory import NOTE, CopyDirectory
from jumpmq.nodes.replicas.disk_thread import DiskThread, Know, Remove, TaskResult
from jumpmq.nodes.replicas.file_exchange import FileExchange
from jumpmq.nodes.replicas.indexing import Indexing
from jumpmq.nodes.replicas.sessions import ReplicaSessions
from jumpmq.nodes.replicas.shipping import Shipping
from jumpmq.queues.clock import until_tick
from jumpmq.replication.actions import (
    Action,
    Alarm,
    Append,
    Apply,
    Begin,
    Close,
    Cut,
    Drop,
    Fill,
    Note,
    Open,
    Read,
    Renew,
    Send,
    Serve,
    Ship,
    Stop,
    Swap,
    Sync,
)  # fmt: skip
from jumpmq.replication.catching_up import CatchingUp
from jumpmq.replication.configuration import Configuration, ConfigurationError, ReplicaId
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Beat, Beaten, Complete, Data, Frame, Manifest, Piece, Segment, Stored, Unfit, Want
from jumpmq.replication.lineage import Lineage, Stretch, before, offset_at, segment_at
from jumpmq.replication.needs import affordable, needed_by_follower, needed_by_members
from jumpmq.replication.pace import Pace, Times
from jumpmq.replication.replica import Replica
from jumpmq.store.indexing import Indexed

FIXED_SEAT = Times(failover=math.inf)
"""Times of a home with a fixed seat: no other replica takes over."""

ALARM_SHOWN = 60.0
"""Seconds for which operators see an alarm after its last occurrence."""

log = logging.getLogger(__name__)


class CopyAlarms:
    """Alarms of a copy: logged at the first occurrence, and shown until :data:`ALARM_SHOWN` seconds after the last.

    Args:
        number: number of the home.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._raised: dict[str, float] = {}  # time of the last occurrence of each reason

    def __call__(self, reason: str) -> None:
        """Raise an alarm."""
        if self._current().pop(reason, None) is None:
            log.error("home %d: %s", self._number, reason)
        self._raised[reason] = now()

    @property
    def shown(self) -> str:
        """The most recent current alarm; empty without an alarm."""
        return next(reversed(self._current()), "")

    def _current(self) -> dict[str, float]:
        least = now() - ALARM_SHOWN
        self._raised = {reason: at for reason, at in self._raised.items() if at > least}
        return self._raised


class CopyOwner(Protocol):
    """Owner of a replica; called in the event loop."""

    def apply(self, position: int) -> None:
        """Record the complete position."""

    def serve(self, epoch: int) -> None:
        """Serve the home: the replica leads, its set has the whole log, and the directory is free for a store of the
        epoch."""

    def close(self, reason: str) -> None:
        """End the epoch: nothing more is written or confirmed."""

    def stop(self, reason: str) -> None:
        """Stop the copy for good: the disk failed or hangs, or etcd was set back. The process has to end, since a
        hanging sync keeps its thread."""

    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        """Mark the copy as damaged: its index would lack data. ``blocks`` is True if the damage keeps other copies from
        being made from this copy.
        """

    def replaced(self) -> None:
        """Reopen the copy: the files received from the leader are complete, and replace the copy's files."""


class CopiedHome:
    """A replica with its I/O.

    Args:
        number: number of the home.
        directory: the opened copy; closed at the end.
        node: node of this process.
        key: the configuration in etcd.
        sessions: sessions with other replicas.
        home: owner of the replica.
        times: bounds for timing.
        alarm: logs and displays messages for operators; by default a new one.

    Attributes:
        me: identity of the replica.
        roles: the protocol.
        alarm: the argument.
        fills_damaged: for a leading home, True while no other copy in the set is undamaged: new copies are filled from
            the damaged log.
        on_loss: records a loss of a leading home; called from any thread. Returns False if the loss was acknowledged
            before, or known before this process opened the store.
    """

    def __init__(
        self,
        number: int,
        directory: CopyDirectory,
        node: str,
        key: ConfigurationKey,
        sessions: ReplicaSessions,
        home: CopyOwner,
        times: Times = FIXED_SEAT,
        alarm: CopyAlarms | None = None,
    ) -> None:
        self.number = number
        self.me: ReplicaId = f"{node}.{directory.noted.disk}"
        self.alarm = alarm or CopyAlarms(number)
        copy = Copy(self.me, directory.noted.epoch, directory.noted.mark, directory.lineage, directory.kept)
        self.roles = Replica(copy)
        self._pace = Pace(self.roles, now(), times)
        self._directory = directory
        self._key = key
        self._sessions = sessions
        self._home = home
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._segments: Callable[[], Lineage] | None = None  # of the open store of a leading home
        self.on_loss: Callable[[str], bool] = _is_new
        self.fills_damaged = False
        self._files = FileExchange(self, directory, times.files_silence)
        soon = self._loop.call_soon_threadsafe

        def on_work(begins: bool) -> None:
            self._pace.on_sync(now() if begins else None)

        self._disk = DiskThread(directory, self._loop, self._on_disk, self._on_disk_failure, on_work)
        self._indexing = Indexing(directory.directory, soon, self._on_indexed, self.doubt, self.alarm)
        self._consumed: tuple[int, ...] = ()  # segments consumed by the copy's index, and not removed yet
        self._catching_up = CatchingUp(now())
        send_all = partial(sessions.send_all, number)
        self._shipping = Shipping(directory.directory, copy, self.send, send_all, self._on_gone, self.pause)
        self._incoming = Incoming(directory.end, directory.next_number)
        self._asked = ConfigurationRequests(key, number, self.on_value, self.on_value, self.alarm)
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._renews = False  # True if the disk takes a new identity at the close

    # --- life ---

    async def start(self) -> None:
        """Read the configuration, and join the protocol.

        Raises:
            EtcdError: etcd cannot be asked, or has no configuration of the home.
        """
        value = await self._key.read()
        if value is None:
            raise EtcdError(f"etcd has no configuration of home {self.number}")
        self.on_value(value)
        self._sessions.join(self.number, self)
        self._tick()

    def stop(self) -> None:
        """Leave the protocol. The log stays as it is, synced or not. Call :meth:`close` afterwards."""
        if self._ended:
            return
        self._ended = True
        self._sessions.leave(self.number)
        self._shipping.stop_all()
        self._asked.close()
        if self._timer is not None:
            self._timer.cancel()
        self._indexing.stop()
        self._disk.end()
        self._files.stop()

    async def close(self) -> None:
        """Leave the protocol, and release the directory. Waits for the disk without blocking the event loop."""
        self.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._indexing.close()
        self._disk.close()
        self._files.close()
        try:
            if self._renews:
                self._directory.renew()
        finally:
            self._directory.close()

    # --- what is known ---

    @property
    def needed_from(self) -> int:
        """First segment of the leader's log that is kept for members. Segments before it are removed once consumed. At
        most :data:`~jumpmq.replication.needs.MOST_KEPT` octets of consumed segments are kept.
        """
        leader, copy = self.roles.leader, self.roles.copy
        if leader is None:
            return 0
        first = needed_by_members(leader, copy)
        return first if self._files.offers else affordable(copy, first)

    @property
    def hangs(self) -> bool:
        """True if the current sync takes so long that the disk counts as failed (R9)."""
        return self._pace.hangs(now())

    @property
    def delivers_until(self) -> float:
        """Time until which messages may be delivered, because no other replica can lead before (R8). 0 if this replica
        may not deliver now.
        """
        return self._pace.delivers_until(now())

    # --- the end of an epoch ---

    def hand_over(self, target: ReplicaId) -> bool:
        """Offer leadership to a follower in the set; True if offered. Everything written must be complete."""
        actions = self.roles.hand_over(target)
        self._act(actions)
        return bool(actions)

    def resign(self) -> None:
        """Give up leadership after the close of the store: any electable replica may claim at once."""
        if self.roles.leader is not None:
            self._act(self.roles.leader.resign())

    # --- the log of a leading home ---

    def begun(self, stretch: Stretch) -> None:
        """Record the next segment, begun and synced by the store."""
        self._act(self.roles.on_begun(stretch))
        self._shipping.written()

    def written(self, position: int) -> None:
        """Record the position up to which the store has written, possibly without a sync."""
        self._catching_up.on_written(position, now())
        self._act(self.roles.on_written(position))
        self._shipping.written()

    def ship_ahead(self, epoch: int, position: int, octets: bytes) -> bool:
        """Ship a commit to all followers before the store of an epoch writes it; return False if it was not shipped."""
        leader = self.roles.leader
        if leader is None or leader.epoch != epoch or not self._shipping.ship_ahead(position, octets, epoch):
            return False
        self._catching_up.on_written(position + len(octets), now())
        return True

    def synced(self, position: int) -> None:
        """Record the position up to which the store has synced."""
        self._act(self.roles.on_synced(position))

    def attach_store(self, segments: Callable[[], Lineage], on_loss: Callable[[str], bool]) -> None:
        """Lead with an open store from now on.

        Args:
            segments: passes the first needed segment to the store, and returns the lineage of all segments in the
                store, including segments before a gap.
            on_loss: see :attr:`on_loss`.
        """
        self._segments, self.on_loss = segments, on_loss

    def detach_store(self) -> None:
        """Continue without the store, which is closed."""
        self._segments = None

    def note_kept(self) -> None:
        """Record the first segment after the last gap of the store's log."""
        if self._segments is None:
            return
        there = {stretch.segment for stretch in self._segments()}
        first = segment_at(self.roles.copy.end)
        while first - 1 in there:
            first -= 1
        self._keep_from(first)

    @property
    def sealed(self) -> Lineage | None:
        """Lineage of the sealed segments with complete commits only; None while the store is being opened or closed. A
        leader that waits for copies has no open store: the lineage is then that of the copy.
        """
        if self._segments is not None:
            lineage = self._segments()
        elif self.roles.leader is not None and not self.roles.leader.serving:
            lineage = self._directory.lineage
        else:
            return None
        return tuple(stretch for stretch in lineage if stretch.segment < segment_at(self.roles.copy.complete))

    def pass_over(self, segment: int) -> None:
        """Stop shipping the log up to and including a damaged segment, because other copies refuse damaged octets.
        Members that lack these octets are filled with files instead.
        """
        if segment < segment_at(self.roles.copy.complete):
            self._keep_from(segment + 1)

    def _keep_from(self, first: int) -> None:
        if before(first) > self.roles.copy.kept:
            self._act(self.roles.on_removed(first))

    def change(self, make: Callable[[Configuration], Configuration]) -> bool:
        """Request a change of the configuration; True if a swap was sent to etcd.

        Raises:
            ConfigurationError: the change is not possible.
        """
        leader = self.roles.leader
        if leader is None:
            raise ConfigurationError("this node does not lead the home")
        actions = leader.change(make(leader.known))
        self._act(actions)
        return bool(actions)

    # --- sessions ---

    def on_connected(self, peer: ReplicaId) -> None:
        self.note_kept()
        self._pace.on_connected(peer, now())
        self._act(self.roles.on_connected(peer))

    def on_disconnected(self, peer: ReplicaId) -> None:
        self._shipping.stop(peer)
        self._incoming.stop(peer)
        self._pace.on_disconnected(peer, now())
        self._act(self.roles.on_disconnected(peer))

    def on_frame(self, peer: ReplicaId, frame: Frame) -> None:
        match frame:  # those of each commit first
            case Stored():
                self._shipping.stored(peer, frame.position)
                self._act(self.roles.on_frame(peer, frame))
            case Segment() | Data() if peer != self.roles.source:
                log.info("home %d: %s ships, and its log is not followed", self.number, peer)
            case Data():
                self._on_data(peer, frame)
            case Segment():
                self._incoming.begin(peer, frame.stretch, self.roles.copy.end)
                self._act(self.roles.on_frame(peer, frame))
            case Beat():
                self._act(self._pace.on_beat(peer, frame, now()))
            case Beaten():
                self._pace.on_beaten(peer, frame, now())
            case Unfit():
                if not frame.needs_files:
                    self.alarm(frame.reason)
                    if self.roles.leader is not None:
                        self._files.check(self.roles.leader.stored.get(peer, 0))
            case Want():
                self._files.on_want(peer, frame)
            case Manifest() | Piece():
                self._files.on_frame(peer, frame)
            case _:
                self._act(self.roles.on_frame(peer, frame))

    def _on_data(self, peer: ReplicaId, frame: Data) -> None:
        """Pass whole commits to the replica. After damage the session ends, and the leader verifies its log."""
        try:
            for position, octets in self._incoming.add(peer, frame, self.roles.copy.lineage):
                self._act(self.roles.on_frame(peer, Data(frame.epoch, position, octets)))
        except DamagedCommit as damage:
            self.alarm(f"{peer} sent data that is not stored here: {damage}")
            self.send(peer, Unfit(frame.epoch, False, f"{self.me} refuses the data sent: {damage}"))
            self.drop(peer)

    def send(self, peer: ReplicaId, frame: Frame) -> int:
        """Send a frame to a replica; return its size in octets, 0 without a session."""
        return self._sessions.send(self.number, peer, frame)

    def pause(self, peer: ReplicaId, octets: int) -> float:
        """Return the pause in seconds before octets are sent to a replica: a replica that catches up must not delay
        clients.
        """
        leader = self.roles.leader
        return 0.0 if leader is None or peer in leader.waits() else self._catching_up.pause(octets, now())

    def drop(self, peer: ReplicaId) -> None:
        """End the session with a replica; a new session begins after a pause."""
        self._sessions.drop(self.number, peer)

    def _on_gone(self, peer: ReplicaId, reason: str) -> None:
        self.note_kept()
        self.alarm(f"{peer}: {reason}")
        self.drop(peer)

    # --- files of a leader ---

    def on_file(self, error: Exception | None) -> None:
        """See :class:`~jumpmq.nodes.replicas.file_exchange.Exchanging`."""
        if error is not None:
            self._home.stop(f"files of a copy cannot be written: {error}")
            self.stop()

    def doubt(self, reason: str, *, blocks: bool = False) -> None:
        """See :class:`~jumpmq.nodes.replicas.file_exchange.Exchanging`."""
        self.alarm(reason)
        self._home.doubt(reason, blocks=blocks)

    def on_installed(self) -> None:
        """See :class:`~jumpmq.nodes.replicas.file_exchange.Exchanging`."""
        self._home.replaced()
        self.stop()

    # --- the disk ---

    def _on_disk(self, answers: list[TaskResult]) -> None:
        for task, answer in answers:
            match task, answer:
                case Sync(), int():
                    self._act(self.roles.on_synced(answer))
                case Note(), OSError():
                    self._on_note_failure(task, answer)
                case Note(), _:
                    self._act(self.roles.on_noted(task.epoch, task.mark))
                    self._index()
                case Cut(), int():
                    self._incoming.next_is(self._directory.end, self._directory.next_number)
                    self._act(self.roles.on_cut(answer))
                case Begin(), Stretch():
                    self._directory.release()
                    self._act(self.roles.on_begun(answer))

    def _index(self) -> None:
        """Remove consumed segments of a following copy, and index the log up to the mark. Octets behind the mark may
        still be truncated.

        A mark at the start of a segment only implies that the segment's file exists. The opening may be missing.
        """
        lock, leads = self._directory.lock, self.roles.leader is not None or self.roles.candidate is not None
        if leads or self._ended:
            return
        # Segments that peers may need are kept (R11). A later call removes them, when the peers have them: without new
        # commits there is no further run of the index.
        if self._consumed and (going := tuple(one for one in self._consumed if one < needed_by_follower(self.roles))):
            self._consumed = tuple(one for one in self._consumed if one > going[-1])
            if before(first := going[-1] + 1) > self.roles.copy.kept:
                self._act(self.roles.on_removed(first))
            self._disk.do(Remove(going))
        mark = self.roles.copy.mark
        if lock is not None and offset_at(mark):
            self._indexing.run(segment_at(mark), lock.fileno())

    def _on_indexed(self, indexed: Indexed) -> None:
        self._consumed = indexed.consumed
        self._index()

    def _on_note_failure(self, note: Note, error: OSError) -> None:
        """Handle a failed write of the note. A mark is written with the next note, a promise is written again. A
        candidate gives up, because other replicas wait for its epoch.
        """
        if self.roles.candidate is not None:
            self._on_disk_failure(error)
            return
        self.alarm(f"{self._directory.directory / NOTE} cannot be written: {_text(error)}")
        if note.epoch > self.roles.copy.noted:
            self._loop.call_later(self._times.note_retry, self._disk.do, note)

    def _on_disk_failure(self, error: Exception) -> None:
        reason = _text(error) if isinstance(error, OSError) else repr(error)
        self._act(self.roles.stop(f"the copy in {self._directory.directory} cannot be written: {reason}"))

    # --- etcd ---

    def on_value(self, value: Configuration, read: Read | None = None) -> None:
        """Process a configuration from etcd: from the watch, a swap or a read."""
        if self._ended:
            return
        before = self.roles.known
        actions = self.roles.on_value(value) if read is None else self.roles.on_read(value, read)
        if self.roles.known is not before:
            self._pace.on_value(before, value, now())
            self._disk.do(Know(value.to_json().decode()))
        self._act(actions)

    # --- actions ---

    def _tick(self) -> None:
        self._timer = self._loop.call_later(until_tick(self._times.beat, self._loop.time()), self._tick)
        self._act(self._pace.tick(now()))
        self._files.tick()
        if self._indexing.is_due or self._consumed:
            self._index()

    def _act(self, actions: Iterable[Action]) -> None:
        """Perform actions in order."""
        for action in actions:
            if self._ended:
                return
            match action:
                case Send(frame=Complete() as complete):
                    self._shipping.tell_complete(action.to, complete)
                case Send():
                    self.send(action.to, action.frame)
                    if isinstance(action.frame, Unfit) and action.frame.needs_files:
                        self._files.want(action.to, action.frame.epoch)
                case Note() | Cut() | Sync() | Open() | Append():
                    self._disk.do(action)
                case Begin():  # from now on the directory belongs to a store; no index run may use it
                    self._indexing.end(partial(self._disk.do, action))
                case Swap():
                    self._asked.swap(action)
                case Read():
                    self._asked.read(action)
                case Ship():
                    assert self.roles.leader is not None
                    self._shipping.ship(action.to, action.position, self.roles.leader.epoch)
                case Fill():
                    self._shipping.fill(action.to, action.position, action.epoch)
                case Apply():
                    self._catching_up.on_complete(action.position, now())
                    self._home.apply(action.position)
                case Serve():
                    self._home.serve(action.epoch)
                case Close():
                    self._shipping.stop_all()
                    self._home.close(action.reason)
                case Drop():
                    self.drop(action.peer)
                case Renew():  # the disk has lost stored octets
                    self._renews = True
                    self.alarm(action.reason)
                    self._home.stop(action.reason)
                    self.stop()
                case Stop():
                    self._home.stop(action.reason)
                    self.stop()
                case Alarm():
                    self.alarm(action.reason)


def _is_new(loss: str) -> bool:
    """Return True: without a store, no loss is known."""
    return True


def _text(error: OSError) -> str:
    return error.strerror or str(error)


def now() -> float:
    """Return the time in seconds, by a clock that counts suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
