"""Return of shards to a node that joined under the name of a forgotten node.

Shards that were moved off the forgotten node keep its name, so that the new node gets no others of these names. After
its first start, which :mod:`~jumpmq.nodes.joining.joining` notes, the new node lists the shards of its name that
are at other nodes, and asks their homes for one after the other. The list is in its store, by the ids of queues,
until no shard is left: a kill ends nothing. A shard that has moved, for any reason, has another id, and is not asked
for any more. Later starts list none.
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
"""Interval between checks of a shard in migration, in seconds."""

ASKED_AGAIN, RAREST = 1.0, 30.0
"""Seconds until a shard that could not move is asked for again, at first, and after many attempts without any move."""

Ask = Callable[..., Awaitable[bool | str | None]]
"""Asks a home, by its number, with the arguments of :meth:`~jumpmq.nodes.moves.relocating.Relocating.give`; returns the
answer, None where there is none."""

log = logging.getLogger(__name__)


class ReturningShard(NamedTuple):
    """A shard that is to return, by the id of the queue at the home where the shard was listed; ``number`` is that of
    the shard."""

    vhost: str
    name: str
    id: int
    number: int


class Returning:
    """Shards returning to the local node.

    Args:
        store: has the list.
        workers: homes of this node, which shards are spread over.
        ask: asks the homes of shards.
    """

    def __init__(self, topology: Topology, turns: Turns, store: Store, workers: int, links: Links, ask: Ask) -> None:
        self._topology = topology  # knows the queues
        self._turns = turns  # those of the broker
        self._store = store  # has the list
        self._workers = workers  # homes to wait for
        self._links = links  # to all peers
        self._ask = ask  # asks the homes of shards
        self._told: set[tuple[str, str]] = set()  # reasons in the log, by shard

    async def run(self, kept: Any) -> None:
        """Bring back shards until none is left.

        Args:
            kept: the value of :data:`~jumpmq.store.kinds.RETURNING` at the start.
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
        """Bring back a shard; False if to be tried again."""
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
        """Say in the log, once, why a shard cannot return yet."""
        if reason is not None and (queue.name, reason) not in self._told:
            self._told.add((queue.name, reason))
            log.warning("%r cannot return to this node yet: %s", queue, reason)
