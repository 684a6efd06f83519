"""Consumers and dead-letter targets of many queues, for warnings of queues without consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumpmq.http.rates import Rates
from jumpmq.topology import ConsistentHashExchange, Exchange
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.broker import Broker


class ServedQueues:
    """Consumers of queues on hash exchanges, and targets of dead-lettering; both are computed at the first use."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._consumers_of = rates.latest.consumers_of
        self._of: dict[ConsistentHashExchange, set[int]] = {}
        self._dead_letters: dict[str, set[tuple[object, object]]] = {}

    async def learn(self, vhost: str) -> None:
        """Collect the dead-letter targets of a virtual host, unless known."""
        if vhost in self._dead_letters or vhost not in self._broker.topology.vhosts:
            return
        host, found = self._broker.topology.vhosts[vhost], set[tuple[object, object]]()
        async for declared in self._broker.slices.through(list(host.declared.values())):
            arguments, force = declared.definition.arguments, host.in_force.of(declared.destination).definition
            exchange = arguments.text("x-dead-letter-exchange")
            key = arguments.text("x-dead-letter-routing-key")
            exchange = force.get("dead-letter-exchange") if exchange is None else exchange
            if exchange is not None:
                found.add((exchange, force.get("dead-letter-routing-key") if key is None else key))
        self._dead_letters[vhost] = found

    def takes_dead_letters(self, queue: QueueDefinition) -> bool:
        """Return True if dead-lettered messages go to this queue: by an exchange bound to the queue, or by name."""
        host, sent = self._broker.topology.vhosts[queue.vhost], self._dead_letters.get(queue.vhost, set())
        exchanges = {exchange for exchange, _ in sent if exchange}
        bound = {binding.source for binding in host.bindings_to(host.declared[queue.name].destination)}
        return ("", queue.name) in sent or not exchanges.isdisjoint(bound)

    def beside(self, queue: QueueDefinition) -> int:
        """Return the number of queues with consumers that share a hash exchange with a queue."""
        host = self._broker.topology.vhosts[queue.vhost]
        sources = {binding.source for binding in host.bindings_to(host.declared[queue.name].destination)}
        rings = [one for name in sources if isinstance(one := host.exchanges[name], ConsistentHashExchange)]
        return len(set().union(*map(self._queues, rings)))

    def _queues(self, ring: ConsistentHashExchange) -> set[int]:
        if ring not in self._of:
            bound = {one.id for one in ring.bindings.values() if not isinstance(one, Exchange)}
            self._of[ring] = {number for number in bound if number in self._consumers_of}
        return self._of[ring]
