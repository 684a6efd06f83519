"""Moves of streams to a different machine, or from or to a home with copies: the files are copied before the move, and
the stream is served at its current home meanwhile.

The current home records the destination, and continues after a restart. When the destination has nearly all files, the
stream moves as other queues do (:mod:`jumpmq.nodes.moves.moving`), and the messages written since then follow. If the
copy fails, the stream stays.
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
"""Maximum number of copy rounds. After these rounds the stream moves even if more than ``near`` octets are left,
because publishers write faster than the copy.
"""

AT_ONCE = 2
"""Maximum number of streams copied to a home concurrently; further streams wait."""

PAUSE = 0.1
"""Interval between checks of a waiting stream, in seconds."""

log = logging.getLogger(__name__)


class Readers(Protocol):
    """Reader groups with reserved messages of local queues."""

    def reader_of(self, queue: str, vhost: str) -> str | None:
        """Return the name of the reader group with reserved messages of a local queue; None without such a group."""


class StreamMoves:
    """Pending moves of this home's streams to a different machine.

    Args:
        store: keeps the records; None if everything is in memory.
        tasks: the tasks of all moves.
        near: maximum octets left to copy before a stream moves.

    Attributes:
        has_copies: whether a home has copies.
    """

    def __init__(
        self,
        offers: StreamOffers,
        tasks: MoveTasks,
        turns: Turns,
        store: Store | None,
        near: int,
        has_copies: Callable[[int], bool],
    ) -> None:
        self._near = near
        self._has_copies = has_copies
        self._offers = offers  # sends the files
        self._tasks = tasks  # of all moves
        self._turns = turns  # those of the broker
        self._store = store  # keeps the records
        self._topology: Topology  # knows the streams
        self._readers: Readers  # know the reader groups of a stream
        self._homes: dict[int, int] = {}  # destinations, by stream
        self._copying: Counter[int] = Counter()  # number of concurrent copies, by destination

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Restore the recorded state."""
        self._homes = {int(key): value for kind, key, value in definitions if kind == STREAM_MOVE}

    def serve(self, topology: Topology, readers: Readers) -> None:
        """Continue pending moves, and accept new ones."""
        self._topology, self._readers = topology, readers
        here = {queue.id: queue for host in topology.vhosts.values() for queue in host.declared.values()}
        with self._turns.turn():
            for number, home in list(self._homes.items()):
                queue = here.get(number)
                # The stream was deleted, has moved already, or its destination has left the cluster meanwhile.
                if queue is None or queue.contents is None or home not in topology.homes:
                    self._forget(number)
                else:
                    self._run(queue, home)

    def is_for(self, queue: DeclaredQueue, home: int) -> bool:
        """Return True for a stream here whose files have to be copied for a move to the given home."""
        return isinstance(queue.contents, Stream) and self.must_copy(home)

    def must_copy(self, home: int) -> bool:
        """Return True if a move to a home has to copy the files of streams: the home is at another machine, or one of
        the two homes is replicated. Replicas receive the log, not files of streams.
        """
        own = self._topology.home
        is_copied = self._store is not None and self._store.is_copied
        return self._topology.node_of(home) != self._topology.node_of(own) or is_copied or self._has_copies(home)

    def is_under_way(self, queue: QueueDefinition) -> bool:
        """Return True if a stream is being copied."""
        return queue.id in self._homes

    def begin(self, queue: DeclaredQueue, home: int) -> None:
        """Start the move of a stream to a different machine.

        Raises:
            PreconditionFailed: the stream cannot move there, or is moving already.
        """
        refuse_move(self._topology, queue.definition, home)
        subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        if queue.id in self._homes or (queue.contents is not None and queue.contents.behind is not None):
            raise PreconditionFailed(f"{subject} is moving already")
        self._homes[queue.id] = home
        if self._store is not None:
            self._store.put(STREAM_MOVE, str(queue.id), home)
        self._run(queue, home)

    def end(self, queue: DeclaredQueue) -> None:
        """Cancel a pending move of a stream, or clear the displayed reason of a failed move."""
        if (home := self._homes.get(queue.id)) is not None:
            self._tasks.end(queue.id)
            self._stay(queue, home, "")
        elif isinstance(queue.contents, Stream):
            queue.contents.move.shown = {}

    def follow(self, change: Change) -> None:
        """Drop the record of a stream that has moved, or is deleted."""
        if isinstance(change, MoveQueue | DeleteQueue) and change.id in self._homes:
            self._tasks.end(change.id)
            self._forget(change.id)

    def _run(self, queue: DeclaredQueue, home: int) -> None:
        assert isinstance(queue.contents, Stream)
        queue.contents.move.shown = {"moving_to": self._topology.node_of(home)}
        self._tasks.run(queue, self._move(queue, queue.contents, home))

    async def _move(self, queue: DeclaredQueue, stream: Stream, home: int) -> None:
        try:
            await self._copy(queue, stream, home)
            # Asked after the copy, which takes long: a reader group may have begun meanwhile.
            if (group := self._readers.reader_of(queue.name, queue.vhost)) is not None:
                raise CopyRefused(f"reader group '{group}' has messages of it")
            self._tasks.wait(queue, "a change of definitions")
            pending = self._topology.propose(MoveQueue(queue.vhost, queue.name, queue.id, home))
            await decided(pending)
            pending.result()
        except (CopyRefused, AMQPError) as error:
            self._stay(queue, home, error.text if isinstance(error, AMQPError) else str(error))

    async def _copy(self, queue: DeclaredQueue, stream: Stream, home: int) -> None:
        """Copy nearly all files of a stream to another home."""
        while self._copying[home] >= AT_ONCE:
            self._tasks.wait(queue, "other streams to be copied first", self._offers.octets)
            await asyncio.sleep(PAUSE)
        self._copying[home] += 1
        try:
            for _ in range(ROUNDS):
                before = stream.move.extents
                octets = sum(extent.size for extent in before)
                await self._offers.copied(stream, home, 0, partial(self._tell, queue, home, octets))
                # Publishing goes on during each round; the last octets are copied while the stream's messages wait.
                if _added(before, stream.move.extents) <= self._near:
                    return
        finally:
            self._copying[home] -= 1

    def _tell(self, queue: DeclaredQueue, home: int, octets: int, sent: int) -> None:
        if home not in self._topology.homes:
            raise CopyRefused("it has left the cluster")
        what = f"node '{self._topology.node_of(home)}' to copy its {octets} octets"
        self._tasks.wait(queue, what, sent)

    def _stay(self, queue: DeclaredQueue, home: int, reason: str) -> None:
        """Cancel the move of a stream, and display the reason, if any."""
        if queue.id not in self._homes:
            return
        node = self._topology.node_of(home) or f"of home {home}"
        if reason:
            log.error("%r stays here, as it cannot be moved to node '%s': %s", queue, node, reason)
        if isinstance(queue.contents, Stream):
            queue.contents.move.shown = {"move_failed": f"to node '{node}': {reason}"} if reason else {}
        with self._turns.turn():
            self._forget(queue.id)
        self._offers.forget(queue.id, home)

    def _forget(self, number: int) -> None:
        del self._homes[number]
        if self._store is not None:
            self._store.delete(STREAM_MOVE, str(number))


def _added(before: list[Extent], now: list[Extent]) -> int:
    """Return the octets added since ``before``."""
    sizes = {extent.first: extent.size for extent in before}
    return sum(extent.size - sizes.get(extent.first, 0) for extent in now)
