"""Migration of this home's queues to remote homes: all queues if the home is left, or some if the home has more than
its share.

From a home that is left its clients are sent away, too, and then it is removed. That it is left is in the definitions
(:class:`~jumpmq.topology.changes.LeaveHome`), so that no queue is placed there, and which queues are still there is,
too: whatever is killed meanwhile, the next start goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jumpmq.amqp.errors import AMQPError
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.peers import QueueUsers
from jumpmq.broker.upkeep.slices import decided
from jumpmq.nodes.messages.outbox import Outbox
from jumpmq.nodes.moves.stream_moves import StreamMoves
from jumpmq.nodes.transport.links import Links
from jumpmq.queues.stream import Stream
from jumpmq.topology import Change, LeaveHome, MoveQueue, RemoveHome, Topology
from jumpmq.topology.changes.queues import refuse_move
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import home_of

AT_ONCE = 20
"""Maximum number of concurrent migrations."""

PAUSE = 0.1
"""Interval between checks for remaining work, in seconds."""

TOLD = 30.0
"""Seconds without progress before the awaited condition is logged, repeated at the same interval."""

log = logging.getLogger(__name__)


class Relocating:
    """Moves queues away from the local home.

    Attributes:
        on_removed: does what is to be done when the home is removed.
        on_left: called when all that was here is at other homes of the node, and the home is removed.
    """

    def __init__(self, links: Links, outbox: Outbox, streams: StreamMoves, turns: Turns) -> None:
        self.on_removed: Callable[[], Awaitable[None]] | None = None
        self.on_left: Callable[[], None] = lambda: None
        self._links = links  # to all peers
        self._outbox = outbox  # messages in flight to peers
        self._streams = streams  # moves of streams to other machines
        self._turns = turns  # those of the broker
        self._topology: Topology  # knows the queues
        self._users: QueueUsers  # users of the local queues
        self._task: asyncio.Task[None] | None = None  # leaves the home, or takes it back
        self._balancing: asyncio.Task[None] | None = None  # moves some queues
        self._waits_for = ""  # awaited entry of the log
        self._since = 0.0  # by the clock of the event loop

    def serve(self, topology: Topology, users: QueueUsers) -> None:
        """Set the topology and the users of queues."""
        self._topology, self._users = topology, users

    def decide(self, leaves: bool) -> None:
        """Start or stop leaving the local home."""
        self.stop()
        if leaves or self._topology.home in self._topology.left:
            self._task = asyncio.get_running_loop().create_task(
                self._leave() if leaves else self._stay(), name="leaving"
            )

    def stop(self) -> None:
        """Go on in the next run."""
        for task in self._task, self._balancing:
            if task is not None:
                task.cancel()
        self._task = self._balancing = None

    def begin(self, queue: DeclaredQueue, home: int) -> bool:
        """See :class:`~jumpmq.broker.peers.MoveRequests`."""
        if not self._streams.is_for(queue, home):
            return False
        with self._turns.turn():
            self._streams.begin(queue, home)
        return True

    def stop_copy(self, queue: DeclaredQueue) -> None:
        """See :class:`~jumpmq.broker.peers.MoveRequests`."""
        self._streams.end(queue)

    async def give(self, vhost: str, name: str, number: int, home: int, begun: bool) -> bool | str:
        """Move the queue with the given id to a remote home.

        Args:
            begun: the answer to an earlier request was True.

        Returns:
            True: the move is under way, or the queue with this id is gone; False: the move that had begun has failed;
            or the reason why the queue cannot move now.
        """
        host = self._topology.vhosts.get(vhost)
        queue = None if host is None else host.declared.get(name)
        if queue is None or queue.id != number:
            return True
        if begun:
            return self._streams.is_under_way(queue.definition)
        if (group := self._users.reader_of(name, vhost)) is not None:
            return f"reader group '{group}' has messages of queue '{name}' in vhost '{vhost}'"
        try:
            refuse_move(self._topology, queue.definition, home)
            if not self.begin(queue, home):
                pending = self._topology.propose(MoveQueue(vhost, name, number, home))
                await decided(pending)
                pending.result()
        except AMQPError as error:
            return error.text
        return True

    def rebalance(self) -> None:
        """Move queues to homes with fewer queues, until no running home has two fewer than this home; continues in the
        background, some queues at a time. Immovable queues stay."""
        if self._balancing is None or self._balancing.done():
            self._balancing = asyncio.get_running_loop().create_task(self._rebalance(), name="rebalancing")

    async def _rebalance(self) -> None:
        own, counts = self._topology.home, self._topology.holdings.queues_by_home
        for queue in [one for one in self._queues() if one.definition.home == own]:
            others = self._others()
            if not others or counts[own] < min(counts[home] for home in others) + 2:
                return
            if not queue.definition.before and self._topology.vhosts[queue.vhost].declared.get(queue.name) is queue:
                await self._move(queue, others)
            while self._streams.is_under_way(queue.definition):  # noqa: ASYNC110
                await asyncio.sleep(PAUSE)
            while sum(1 for one in self._queues() if home_of(one.definition.before) == own) >= AT_ONCE:  # noqa: ASYNC110
                await asyncio.sleep(PAUSE)

    def _others(self) -> list[int]:
        """Return the possible destinations of queues at present."""
        return [home for home in self._links.homes if home in self._topology.homes.keys() - self._topology.left]

    def _others_here(self) -> list[int]:
        """Return the possible destinations at the local node: a worker leaves its queues to the node's remaining
        workers.
        """
        node = self._topology.node_of(self._topology.home)
        return [home for home in self._others() if self._topology.node_of(home) == node]

    async def _stay(self) -> None:
        await self._propose(LeaveHome(self._topology.home, False))

    async def _leave(self) -> None:
        own = self._topology.home
        await self._propose(LeaveHome(own))
        log.warning("home %d is removed: its queues move to other homes", own)
        while True:
            if await self._is_empty():
                self._users.close_all("home is left")
                if await self._propose(RemoveHome(own)):
                    break
            await asyncio.sleep(PAUSE)
        log.warning("home %d is empty, and no part of the broker any more", own)
        if self.on_removed is not None:
            await self.on_removed()
        self.on_left()

    async def _is_empty(self) -> bool:
        """Return True if no queues and no messages for remote homes are left here; else start moving more."""
        own, declared = self._topology.home, self._queues()
        here = [one for one in declared if one.definition.home == own]
        on_way = sum(1 for one in declared if home_of(one.definition.before) == own)
        kept = sum(count for _, count, _ in self._outbox.figures())
        if not (here or on_way or kept):
            return True
        waits_for = f"{len(here)} queues, {on_way} on their way, and {kept} messages for other homes"
        for one in [one for one in here if not one.definition.before][: max(0, AT_ONCE - on_way)]:
            if (reason := await self._move(one, self._others_here())) is not None:
                waits_for = f"{waits_for}: {reason}"
        self._tell(waits_for)
        return False

    async def _move(self, queue: DeclaredQueue, others: list[int]) -> str | None:
        """Start the migration of a queue to a home of the given list; return the reason if impossible."""
        subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        if (group := self._users.reader_of(queue.name, queue.vhost)) is not None:
            return f"reader group '{group}' has messages of {subject}"
        counts = self._topology.holdings.queues_by_home
        if not others:
            return "no other home is up"
        here = self._topology.node_of(self._topology.home)
        if isinstance(queue.contents, Stream):  # its files go along, to another machine as a copy
            others = [home for home in others if self._topology.node_of(home) == here] or others
        home = min(others, key=lambda number: (counts[number], number))
        if queue.shard is not None and self._topology.node_of(home) not in (here, queue.definition.node):
            return f"{subject} is a shard of its node"
        try:
            if not self.begin(queue, home):
                await self._propose(MoveQueue(queue.vhost, queue.name, queue.id, home))
        except AMQPError as error:
            return error.text
        return None

    def _queues(self) -> list[DeclaredQueue]:
        hosts = self._topology.vhosts.values()
        return [one for host in hosts for one in host.declared.values() if one.definition.is_kept]

    async def _propose(self, change: Change) -> bool:
        """Propose a change, and wait for the decision; return True if accepted."""
        pending = self._topology.propose(change)
        await decided(pending)
        try:
            pending.result()
        except AMQPError as error:
            self._tell(error.text)
            return False
        return True

    def _tell(self, waits_for: str) -> None:
        """Log the awaited condition if unchanged for long."""
        now = asyncio.get_running_loop().time()
        if waits_for != self._waits_for:
            self._waits_for, self._since = waits_for, now
        elif now - self._since >= TOLD:
            self._since = now
            log.warning("home %d is left, and waits for %s", self._topology.home, waits_for)
