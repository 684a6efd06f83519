"""What follows from a change, prepared step by step where nobody sees it, and then revealed at once.

Between the steps others are served, with the definitions as they were: queues that are not there yet get no messages,
and exchanges route by the bindings that they had. All records are in one commit, so that a crash leaves the definitions
as they were before or as they are after.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import Bind, Change, DeclareQueue, Unbind
from jumpmq.topology.exchanges import ConsistentHashExchange, Destination, Exchange
from jumpmq.topology.policies import Policies
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.definitions import QueueDefinition
    from jumpmq.topology.policies import InForce
    from jumpmq.topology.topology import Topology

FEW = 200
"""Bindings that are changed where they are: that takes less than to make twins of exchanges."""


class _Rebinding:
    """What changes of an exchange's bindings."""

    def __init__(self) -> None:
        self.removed: list[Binding] = []
        self.added: list[Binding] = []
        self.twin: Exchange | None = None


class Preparation:
    """Shards that are to be made, bound and unbound in a virtual host.

    Args:
        policies: those that will be in force.
        coming: an exchange that will be there.

    Attributes:
        changes: what was prepared.
    """

    def __init__(
        self, topology: Topology, vhost: VirtualHost, policies: Policies, coming: Exchange | None = None
    ) -> None:
        self.changes: list[Change] = []
        self._topology = topology
        self._vhost = vhost
        self._policies = policies
        self._coming = coming
        self._queues: dict[str, tuple[DeclaredQueue, InForce]] = {}
        self._rebindings: dict[Exchange, _Rebinding] = {}

    def prepare(self, changes: Iterator[Change]) -> Iterator[None]:
        """Prepare changes, a step each: of queues that are not there, and of bindings."""
        for change in changes:
            self.changes.append(change)
            match change:
                case DeclareQueue(definition):
                    self._prepare_queue(definition)
                case Bind(binding=binding):
                    self._rebinding(binding).added.append(binding)
                    queue = self._queue(binding.destination)
                    self._topology.records.put_binding(self._exchange(binding), binding, queue, "")
                case Unbind(binding=binding):
                    exchange = self._exchange(binding)
                    self._rebinding(binding).removed.append(binding)
                    self._topology.records.delete_binding(exchange, binding, exchange.bindings[binding])
            yield
        if sum(len(one.removed) + len(one.added) for one in self._rebindings.values()) > FEW:
            for exchange, rebinding in self._rebindings.items():
                rebinding.twin = yield from self._make_twin(exchange, rebinding)

    def reveal(self) -> None:
        """Let all that was prepared be there, after the policies and the exchange that were to come."""
        for prepared in self._queues.values():
            self._vhost.add_queue(*prepared)
        for exchange, rebinding in self._rebindings.items():
            self._vhost.rebind(exchange, rebinding.removed, rebinding.added, rebinding.twin)
            if isinstance(exchange, ConsistentHashExchange) and exchange.name in self._vhost.exchanges:
                self._topology.records.note_ring(exchange)

    def _prepare_queue(self, definition: QueueDefinition) -> None:
        declared = self._topology.make_queue(definition)
        coming = None if self._coming is None else self._coming.name
        self._queues[definition.name] = declared, self._vhost.prepare_queue(declared, self._policies, coming)
        self._topology.records.put_queue(definition)

    def _make_twin(self, exchange: Exchange, rebinding: _Rebinding) -> Generator[None, None, Exchange]:
        twin: Exchange = yield from exchange.twin()
        for binding in rebinding.removed:
            twin.unbind(binding)
            yield
        for binding in rebinding.added:
            twin.bind(binding, self._queue(binding.destination))
            yield
        return twin

    def _queue(self, name: str) -> Destination:
        declared = self._queues[name][0] if name in self._queues else self._vhost.declared[name]
        return declared.destination

    def _exchange(self, binding: Binding) -> Exchange:
        if self._coming is not None and self._coming.name == binding.source:
            return self._coming
        return self._vhost.exchanges[binding.source]

    def _rebinding(self, binding: Binding) -> _Rebinding:
        return self._rebindings.setdefault(self._exchange(binding), _Rebinding())
