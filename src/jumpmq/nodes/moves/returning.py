"""Return of shards to a node that joined again under the name of a removed node.

A removed node's shards move to other nodes and keep the node's name. A new node of that name therefore declares no
second set of shards, but requests the existing shards:

1. At its first start (recorded by :mod:`~jumpmq.nodes.joining.joining`) the node lists the shards with its name at
   other nodes, by the ids of the queues. The node's store keeps the list until no shard is left; later starts use the
   stored list.
2. The node requests the shards from their homes, one shard at a time. A shard that has moved for any other reason has a
   new id, and leaves the list.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from jumpmq.broker.commit.turns import Turns
from jumpmq.nodes.transport.links import Links
from jumpmq.store import Store
from jumpmq.store.kinds import RETURNING
from jumpmq.topology import Topology
from jumpmq.topology.declared import DeclaredQueue

PAUSE = 0.2
"""Interval between checks of a moving shard, in seconds."""

ASKED_AGAIN, RAREST = 1.0, 30.0
"""Initial and maximum delay before a shard that could not move is requested again, in seconds."""

AskRemoval = Callable[..., Awaitable[bool | str | None]]
"""Sends a request to a home, given by number, with the arguments of
:meth:`~jumpmq.nodes.moves.relocating.Relocating.give`. Returns the home's answer, or None without an answer.
"""

log = logging.getLogger(__name__)


class ReturningShard(NamedTuple):
    """A shard that should return here.

    Attributes:
        id: id of the queue at the home where the shard was listed.
        number: number of the shard among its node's shards.
    """

    vhost: str
    name: str
    id: int
    number: int


class Returning:
    """Shards returning to the local node.

    Args:
        store: keeps the list of shards.
        workers: number of the node's homes, over which the shards are spread.
        ask: sends a request to a shard's home.
    """

    def __init__(
        self, topology: Topology, turns: Turns, store: Store, workers: int, links: Links, ask: AskRemoval
    ) -> None:
        self._topology = topology  # knows the queues
        self._turns = turns  # those of the broker
        self._store = store  # keeps the list
        self._workers = workers  # number of homes to wait for
        self._links = links  # to all peers
        self._ask = ask  # sends requests to the homes of shards
        self._logged: set[tuple[str, str]] = set()  # logged reasons, by shard

    async def run(self, kept: Any) -> None:
        """Bring back the shards of the list.

        Args:
            kept: the stored list; True at the first start, before a list was made.
        """
        while len(self._homes) < self._workers:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE)
        left = deque(self._listed() if kept is True else [ReturningShard(*one) for one in kept])
        with self._turns.turn():
            self._store.put(*RETURNING, [*left])
        if left:
            log.info("%d shards of node '%s' return from other nodes", len(left), self._topology.node)
        pause = ASKED_AGAIN
        while left:
            if await self._bring(left[0]):
                left.popleft()
                pause = ASKED_AGAIN
            else:
                left.rotate(-1)
                await asyncio.sleep(pause)
                pause = min(2 * pause, RAREST)
        with self._turns.turn():
            self._store.delete(*RETURNING)

    @property
    def _homes(self) -> list[int]:
        """Homes of the local node accepting queues."""
        return [home for home in self._topology.nodes.get(self._topology.node, ()) if home not in self._topology.left]

    def _listed(self) -> list[ReturningShard]:
        """Return the local node's shards currently at remote nodes."""
        node, found = self._topology.node, []
        for host in self._topology.vhosts.values():
            for exchange in host.exchanges.values():
                if host.in_force.sharding(exchange) is None:
                    continue
                for number, queue in host.shards.of_node(exchange.name, node):
                    is_away = self._topology.node_of(queue.definition.home) != node
                    if is_away and queue.definition.is_kept:
                        found.append(ReturningShard(host.name, queue.name, queue.id, number))
        return found

    def _queue(self, shard: ReturningShard) -> DeclaredQueue | None:
        host = self._topology.vhosts.get(shard.vhost)
        return None if host is None else host.declared.get(shard.name)

    async def _bring(self, shard: ReturningShard) -> bool:
        """Bring back a shard; return False if it has to be tried again later."""
        begun = False
        while (queue := self._queue(shard)) is not None and queue.id == shard.id:
            homes, there = self._homes, queue.definition.home
            if not homes or self._links.to(there) is None:
                return False
            home = homes[shard.number % len(homes)]
            answer = await self._ask(there, shard.vhost, shard.name, shard.id, home, begun)
            if answer is False:
                log.error("%r stays at node '%s': the log there says why", queue, self._topology.node_of(there))
                return True
            if answer is not True:
                self._tell(queue, answer)
                return False
            begun = True
            await asyncio.sleep(PAUSE)
        while (queue := self._queue(shard)) is not None and queue.definition.before:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE)
        return True

    def _tell(self, queue: DeclaredQueue, reason: str | None) -> None:
        """Log, once per shard, the reason why it cannot return yet."""
        if reason is not None and (queue.name, reason) not in self._logged:
            self._logged.add((queue.name, reason))
            log.warning("%r cannot return to this node yet: %s", queue, reason)
