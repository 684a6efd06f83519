"""Additions to a virtual host, prepared in the layout of its tables: adding them merges tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from jumpmq.queues import Queue
from jumpmq.topology.bindings import Binding
from jumpmq.topology.exchanges import Destination, DirectExchange, Exchange
from jumpmq.topology.policies import NOTHING_IN_FORCE, InForce

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue


class ReceivingHost(Protocol):
    """The virtual host that gets the additions; see :class:`~jumpmq.topology.vhost.VirtualHost`."""

    exchanges: dict[str, Exchange]
    declared: dict[str, DeclaredQueue]

    def binders(self, destination: Destination) -> dict[Binding, str]: ...


class Coming:
    """Prepared queues, such as shards, without owner and user; and prepared changes of bindings.

    Attributes:
        declared, contents: the queues by name, and the contents of local ones.
        in_force: policies in force, by object.
        shards: the shards by exchange, and by node and number.
        default: bindings of the queues to the default exchange.
        bound_to: for each destination with a changed binding, all its bindings to named exchanges, with their creators.
        balance: change of the number of bindings, without those of the default exchange.
        by_home: number of new queues per home.
        taken: number of removed bindings, by creator.
    """

    def __init__(self, vhost: ReceivingHost) -> None:
        self.declared: dict[str, DeclaredQueue] = {}
        self.contents: dict[str, Queue] = {}
        self.in_force: dict[Destination, InForce] = {}
        self.shards: dict[str, dict[tuple[str, int], DeclaredQueue]] = {}
        self.default = DirectExchange(vhost.exchanges[""].definition)
        self.bound_to: dict[Destination, dict[Binding, str]] = {}
        self.balance = 0
        self.by_home: Counter[int] = Counter()
        self.taken: Counter[str] = Counter()
        self._vhost = vhost  # the virtual host

    def add_queue(self, declared: DeclaredQueue, in_force: InForce) -> None:
        """Add a new queue."""
        destination = declared.destination
        self.declared[declared.name] = declared
        self.by_home[declared.definition.home] += 1
        if declared.contents is not None:
            self.contents[declared.name] = declared.contents
        if in_force is not NOTHING_IN_FORCE:
            self.in_force[destination] = in_force
        if (shard := declared.shard) is not None:
            self.shards.setdefault(shard[0], {})[declared.definition.node, shard[1]] = declared
        if not declared.is_internal:
            self.default.bind(default_binding(declared.name), destination)

    def bind(self, binding: Binding) -> Destination:
        """Add a new binding to a queue; return the destination."""
        declared = self.declared.get(binding.destination) or self._vhost.declared[binding.destination]
        self._bound_to(declared.destination)[binding] = ""
        self.balance += 1
        return declared.destination

    def unbind(self, source: Exchange, binding: Binding) -> Destination:
        """Remove a binding of a named exchange; return the destination."""
        destination = source.bindings[binding]
        self.taken[self._bound_to(destination).pop(binding)] += 1
        self.balance -= 1
        return destination

    def _bound_to(self, destination: Destination) -> dict[Binding, str]:
        if (found := self.bound_to.get(destination)) is None:
            found = self.bound_to[destination] = self._vhost.binders(destination)
        return found


def default_binding(queue: str) -> Binding:
    """Return the default exchange's binding of a queue: the binding key is the queue's name."""
    return Binding("", "queue", queue, queue.encode(errors="surrogateescape"))
