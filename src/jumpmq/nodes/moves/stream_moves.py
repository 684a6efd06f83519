"""Migration of streams to a different machine, or from or to a home with copies: files are copied first, and the
stream is served at its current home meanwhile.

Where a stream is to go is recorded here, by its home, until it goes: a start goes on. When the other home has nearly
all of the files, the stream moves as other queues do (:mod:`jumpmq.nodes.moves.moving`), and the little that has come
since follows. What keeps the files from being copied ends that, and the stream stays where it is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from jumpmq.amqp.errors import AMQPError, PreconditionFailed
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.moves.move_tasks import MoveTasks
from jumpmq.nodes.moves.stream_offers import CopyRefused, StreamOffers
from jumpmq.queues.stream import Stream
from jumpmq.store import Store
from jumpmq.store.kinds import STREAM_MOVE
from jumpmq.store.stream_copy import Extent
from jumpmq.topology import Change, DeleteQueue, MoveQueue, Topology
from jumpmq.topology.changes.queues import refuse_move
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import QueueDefinition

ROUNDS = 20
"""Number of rounds before a stream moves with more left to copy, as writing is faster than copying."""

AT_ONCE = 2
"""Maximum number of streams copied to a home concurrently; further streams wait."""

PAUSE = 0.1
"""Interval between checks of a waiting stream, in seconds."""

log = logging.getLogger(__name__)


class Readers(Protocol):
    """Readers holding messages of queues here."""

    def reader_of(self, queue: str, vhost: str) -> str | None:
        """Return the reader group with reserved messages of a queue here."""


class StreamMoves:
    """Streams of this home with a pending move to a different machine.

    Args:
        store: store of the records; None if everything is in memory.
        tasks: of queues that move.
        near: maximum octets left to copy before a stream moves.

    Attributes:
        has_copies: whether a home has copies.
    """

    def __init__(self, offers: StreamOffers, tasks: MoveTasks, turns: Turns, store: Store | None, near: int) -> None:
        self._near = near
        self.has_copies: Callable[[int], bool] = lambda home: False
        self._offers = offers  # has files be copied
        self._tasks = tasks  # those of all moves
        self._turns = turns  # those of the broker
        self._store = store  # has the records
        self._topology: Topology  # knows the streams
        self._readers: Readers  # know who reads
        self._homes: dict[int, int] = {}  # where streams are to be, by their ids
        self._copying: Counter[int] = Counter()  # how many are being copied, by home

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Restore the recorded state."""
        self._homes = {int(key): value for kind, key, value in definitions if kind == STREAM_MOVE}

    def serve(self, topology: Topology, readers: Readers) -> None:
        """Continue with pending streams, and accept more."""
        self._topology, self._readers = topology, readers
        here = {queue.id: queue for host in topology.vhosts.values() for queue in host.declared.values()}
        with self._turns.turn():
            for number, home in list(self._homes.items()):
                queue = here.get(number)
                if queue is None or queue.contents is None or home not in topology.homes:
                    self._forget(number)
                else:
                    self._run(queue, home)

    def is_for(self, queue: DeclaredQueue, home: int) -> bool:
        """Return True for a stream here whose files must be copied for a move to the given home."""
        return isinstance(queue.contents, Stream) and self.must_copy(home)

    def must_copy(self, home: int) -> bool:
        """Return True if a move to a home has to copy the files of streams: the home is at another machine, or one of
        the two homes has copies, which get the log alone.
        """
        own = self._topology.home
        is_copied = self._store is not None and self._store.is_copied
        return self._topology.node_of(home) != self._topology.node_of(own) or is_copied or self.has_copies(home)

    def is_under_way(self, queue: QueueDefinition) -> bool:
        """Return True if a stream is being copied."""
        return queue.id in self._homes

    def begin(self, queue: DeclaredQueue, home: int) -> None:
        """Move a stream to a different machine, after copying its files.

        Raises:
            PreconditionFailed: it cannot.
        """
        refuse_move(self._topology, queue.definition, home)
        subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        if queue.id in self._homes or (queue.contents is not None and queue.contents.behind is not None):
            raise PreconditionFailed(f"{subject} is on its way already")
        self._homes[queue.id] = home
        if self._store is not None:
            self._store.put(STREAM_MOVE, str(queue.id), home)
        self._run(queue, home)

    def end(self, queue: DeclaredQueue) -> None:
        """Cancel the migration of a stream, if pending; the reason for a failed migration is no longer shown."""
        if (home := self._homes.get(queue.id)) is not None:
            self._tasks.end(queue.id)
            self._stay(queue, home, "")
        elif isinstance(queue.contents, Stream):
            queue.contents.shown = {}

    def follow(self, change: Change) -> None:
        """A change has taken effect."""
        if isinstance(change, MoveQueue | DeleteQueue) and change.id in self._homes:
            self._tasks.end(change.id)
            self._forget(change.id)

    def _run(self, queue: DeclaredQueue, home: int) -> None:
        assert isinstance(queue.contents, Stream)
        queue.contents.shown = {"moving_to": self._topology.node_of(home)}
        self._tasks.run(queue, self._move(queue, queue.contents, home))

    async def _move(self, queue: DeclaredQueue, stream: Stream, home: int) -> None:
        try:
            await self._copy(queue, stream, home)
            if (group := self._readers.reader_of(queue.name, queue.vhost)) is not None:
                raise CopyRefused(f"reader group '{group}' has messages of it")
            self._tasks.wait(queue, "a change of definitions")
            pending = self._topology.propose(MoveQueue(queue.vhost, queue.name, queue.id, home))
            await decided(pending)
            pending.result()
        except (CopyRefused, AMQPError) as error:
            self._stay(queue, home, error.text if isinstance(error, AMQPError) else str(error))

    async def _copy(self, queue: DeclaredQueue, stream: Stream, home: int) -> None:
        """Copy nearly all files of a stream to a remote home."""
        while self._copying[home] >= AT_ONCE:
            self._tasks.wait(queue, "other streams to be copied before", self._offers.octets)
            await asyncio.sleep(PAUSE)
        self._copying[home] += 1
        try:
            for _ in range(ROUNDS):
                before = stream.extents
                octets = sum(extent.size for extent in before)
                await self._offers.copied(stream, home, 0, partial(self._tell, queue, home, octets))
                if _added(before, stream.extents) <= self._near:
                    return
        finally:
            self._copying[home] -= 1

    def _tell(self, queue: DeclaredQueue, home: int, octets: int, sent: int) -> None:
        if home not in self._topology.homes:
            raise CopyRefused("it is not in the cluster any more")
        what = f"node '{self._topology.node_of(home)}' to have a copy of its {octets} octets"
        self._tasks.wait(queue, what, sent)

    def _stay(self, queue: DeclaredQueue, home: int, reason: str) -> None:
        """Abandon the migration of a stream."""
        if queue.id not in self._homes:
            return
        node = self._topology.node_of(home) or f"of home {home}"
        if reason:
            log.error("%r stays here, as it cannot be moved to node '%s': %s", queue, node, reason)
        if isinstance(queue.contents, Stream):
            queue.contents.shown = {"move_failed": f"to node '{node}': {reason}"} if reason else {}
        with self._turns.turn():
            self._forget(queue.id)
        self._offers.forget(queue.id, home)

    def _forget(self, number: int) -> None:
        del self._homes[number]
        if self._store is not None:
            self._store.delete(STREAM_MOVE, str(number))


def _added(before: list[Extent], now: list[Extent]) -> int:
    """Return the octets added since."""
    sizes = {extent.first: extent.size for extent in before}
    return sum(extent.size - sizes.get(extent.first, 0) for extent in now)
