"""Consequences of a change, prepared step by step, invisibly, and then published at once.

Between the steps clients are served, with the definitions as before: new queues get no messages, and exchanges route by
their old bindings. The prepared objects have their final layout, so that thousands of queues and bindings are published
in one short step. All records are in one commit, so that after a crash the definitions are either the old or the new
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.base import Change
from jumpmq.topology.changes.bindings import Bind, Unbind
from jumpmq.topology.changes.queues import DeclareQueue
from jumpmq.topology.coming import Coming
from jumpmq.topology.exchanges import ConsistentHashExchange, Destination, Exchange
from jumpmq.topology.policies import Policies
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.definitions import QueueDefinition
    from jumpmq.topology.state import State

FEW = 200
"""Number of bindings changed in place: up to it, copying exchanges takes longer."""


class _Rebinding:
    """Changes to an exchange's bindings: removals first, then additions."""

    def __init__(self) -> None:
        self.removed: dict[Binding, None] = {}
        self.added: dict[Binding, Destination] = {}
        self.replacement: Exchange | None = None

    def make_replacement(self, exchange: Exchange) -> Iterator[None]:
        """Prepare a copy of the exchange with these changes."""
        replacement: Exchange = yield from exchange.replacement()
        for binding in self.removed:
            replacement.unbind(binding)
            yield
        for binding, destination in self.added.items():
            replacement.bind(binding, destination)
            yield
        self.replacement = replacement

    def apply(self, exchange: Exchange) -> None:
        """Apply the changes to the exchange."""
        if self.replacement is not None:
            exchange.take_over(self.replacement)
            return
        for binding in self.removed:
            exchange.unbind(binding)
        for binding, destination in self.added.items():
            exchange.bind(binding, destination)


class Preparation:
    """Shards to be made, bound and unbound in a virtual host, and queues to be deleted first.

    Call :meth:`end`, then :meth:`prepare`, then :meth:`publish`.

    Args:
        policies: policies in force after the change.
        coming: exchange about to be added.

    Attributes:
        changes: the prepared changes.
        ended: queues about to be deleted.
    """

    def __init__(self, state: State, vhost: VirtualHost, policies: Policies, coming: Exchange | None = None) -> None:
        self.changes: list[Change] = []
        self.ended: list[DeclaredQueue] = []
        self._state = state
        self._vhost = vhost
        self._policies = policies  # in force after the change
        self._exchange_coming = coming
        self._coming = Coming(vhost)  # the prepared queues and bindings
        self._rebindings: dict[Exchange, _Rebinding] = {}

    def end(self, queues: Iterable[DeclaredQueue]) -> Iterator[None]:
        """Prepare the deletion of queues, one per step. The names become free for new shards."""
        for declared in queues:
            self.ended.append(declared)
            for binding in self._vhost.bindings_to(declared.destination):
                if binding.source:
                    self._unbind(binding)
            yield

    def prepare(self, changes: Iterator[Change]) -> Iterator[None]:
        """Prepare changes, one per step: declarations of new queues, and bindings."""
        for change in changes:
            self.changes.append(change)
            match change:
                case DeclareQueue(definition):
                    self._prepare_queue(definition)
                case Bind(binding=binding):
                    self._bind(binding)
                case Unbind(binding=binding):
                    self._unbind(binding)
            yield
        if sum(len(one.removed) + len(one.added) for one in self._rebindings.values()) > FEW:
            for exchange, rebinding in self._rebindings.items():
                yield from rebinding.make_replacement(exchange)

    def publish(self) -> None:
        """Publish all prepared changes, after the policies and the exchange they depend on."""
        vhost, records = self._vhost, self._state.records
        with vhost.in_order(*self._rebindings):
            for exchange, rebinding in self._rebindings.items():
                rebinding.apply(exchange)
        vhost.note_bindings(self._coming)
        prepared = records.withdraw()  # a new shard may have the key of a deleted one
        for declared in self.ended:
            vhost.remove_queue(declared)
        records.append(prepared)
        vhost.merge(self._coming)
        for exchange, rebinding in self._rebindings.items():
            if vhost.exchanges.get(exchange.name) is not exchange:
                continue  # deleted with another exchange
            if rebinding.removed and exchange.auto_delete and not exchange.bindings:
                vhost.remove_exchange(exchange)
            elif isinstance(exchange, ConsistentHashExchange):
                records.note_ring(exchange)

    def _prepare_queue(self, definition: QueueDefinition) -> None:
        declared = self._state.make_queue(definition)
        coming = None if self._exchange_coming is None else self._exchange_coming.name
        self._coming.add_queue(declared, self._vhost.in_force.prepare_queue(declared, self._policies, coming))
        self._state.records.put_numbered_queue(definition)

    def _bind(self, binding: Binding) -> None:
        exchange = self._exchange(binding)
        destination = self._rebinding(exchange).added[binding] = self._coming.bind(binding)
        self._state.records.put_binding(exchange, binding, destination, "")

    def _unbind(self, binding: Binding) -> None:
        exchange = self._exchange(binding)
        self._rebinding(exchange).removed[binding] = None
        self._state.records.delete_binding(exchange, binding, self._coming.unbind(exchange, binding))

    def _exchange(self, binding: Binding) -> Exchange:
        if self._exchange_coming is not None and self._exchange_coming.name == binding.source:
            return self._exchange_coming
        return self._vhost.exchanges[binding.source]

    def _rebinding(self, exchange: Exchange) -> _Rebinding:
        return self._rebindings.setdefault(exchange, _Rebinding())
