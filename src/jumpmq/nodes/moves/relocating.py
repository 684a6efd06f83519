"""Selection of the queues that move away from this home: all queues before the home is removed, or some queues to even
out the number of queues per home.

The definitions record the removal (:class:`~jumpmq.topology.changes.LeaveHome`), so that no new queue is placed here,
and list the remaining queues. Clients are disconnected before the removal. After a kill of any process, the next start
continues.
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
"""Maximum number of concurrent moves."""

PAUSE = 0.1
"""Interval between checks for remaining work, in seconds."""

TOLD = 30.0
"""Seconds without progress before the log names the awaited condition, repeated at this interval."""

log = logging.getLogger(__name__)


class Relocating:
    """Moves queues away from the local home.

    Args:
        on_removed: awaited after the removal of the home from the definitions; None for nothing to do.
    """

    def __init__(
        self,
        links: Links,
        outbox: Outbox,
        streams: StreamMoves,
        turns: Turns,
        on_removed: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._on_removed = on_removed
        self._on_left: Callable[[], None] = lambda: None  # called last, when the home is removed
        self._links = links  # to all peers
        self._outbox = outbox  # messages in flight to peers
        self._streams = streams  # moves of streams to other machines
        self._turns = turns  # those of the broker
        self._topology: Topology  # knows the queues
        self._users: QueueUsers  # users of the local queues
        self._task: asyncio.Task[None] | None = None  # removes the home, or keeps a home whose removal had begun
        self._balancing: asyncio.Task[None] | None = None  # runs :meth:`rebalance`
        self._waits_for = ""  # the condition last passed to :meth:`_tell`
        self._since = 0.0  # loop time since which the condition has not changed

    def serve(self, topology: Topology, users: QueueUsers) -> None:
        """Set the topology and the users of queues."""
        self._topology, self._users = topology, users

    def listen(self, on_left: Callable[[], None]) -> None:
        """Set the function called once the home is removed and all of its queues are at other homes of the node."""
        self._on_left = on_left

    def decide(self, leaves: bool) -> None:
        """Start removing the local home, or stop the removal."""
        self.stop()
        if leaves or self._topology.home in self._topology.left:
            self._task = asyncio.get_running_loop().create_task(
                self._leave() if leaves else self._stay(), name="leaving"
            )

    def stop(self) -> None:
        """Cancel all tasks; the next run of the process continues."""
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
        """Move the queue with the given id to another home.

        Args:
            begun: True if an earlier call has returned True for this move.

        Returns:
            True: the move is under way, or no queue with this id is left here. False: the move that had begun has
            failed. A text: the reason why the queue cannot move now.
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
        """Move queues to homes with fewer queues, until this home has at most one queue more than any running home. The
        moves continue in the background, some at a time. Queues that cannot move stay.
        """
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
        """Return the possible destinations at the local node. When a worker is removed, its queues go to the node's
        other workers.
        """
        node = self._topology.node_of(self._topology.home)
        return [home for home in self._others() if self._topology.node_of(home) == node]

    async def _stay(self) -> None:
        await self._propose(LeaveHome(self._topology.home, False))

    async def _leave(self) -> None:
        own = self._topology.home
        await self._propose(LeaveHome(own))
        log.warning("home %d is being removed: its queues move to other homes", own)
        while True:
            if await self._is_empty():
                self._users.close_all("home is left")
                if await self._propose(RemoveHome(own)):
                    break
            await asyncio.sleep(PAUSE)
        log.warning("home %d is empty, and has left the broker", own)
        if self._on_removed is not None:
            await self._on_removed()
        self._on_left()

    async def _is_empty(self) -> bool:
        """Return True if this home has neither queues nor messages for other homes left; else start more moves."""
        own, declared = self._topology.home, self._queues()
        here = [one for one in declared if one.definition.home == own]
        on_way = sum(1 for one in declared if home_of(one.definition.before) == own)
        kept = sum(count for _, count, _ in self._outbox.figures())
        if not (here or on_way or kept):
            return True
        waits_for = f"{len(here)} queues, {on_way} moving queues, and {kept} messages for other homes"
        for one in [one for one in here if not one.definition.before][: max(0, AT_ONCE - on_way)]:
            if (reason := await self._move(one, self._others_here())) is not None:
                waits_for = f"{waits_for}: {reason}"
        self._tell(waits_for)
        return False

    async def _move(self, queue: DeclaredQueue, others: list[int]) -> str | None:
        """Start the move of a queue to one of the given homes; return the reason if that is impossible."""
        subject = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        if (group := self._users.reader_of(queue.name, queue.vhost)) is not None:
            return f"reader group '{group}' has messages of {subject}"
        counts = self._topology.holdings.queues_by_home
        if not others:
            return "no other home is up"
        here = self._topology.node_of(self._topology.home)
        if isinstance(queue.contents, Stream):  # files: prefer a handover on this machine to a copy
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
        """Log the awaited condition, if it has not changed for :data:`TOLD` seconds."""
        now = asyncio.get_running_loop().time()
        if waits_for != self._waits_for:
            self._waits_for, self._since = waits_for, now
        elif now - self._since >= TOLD:
            self._since = now
            log.warning("the removal of home %d waits for %s", self._topology.home, waits_for)
