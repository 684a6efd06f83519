"""Queues fed by an exchange."""

from collections.abc import Iterator

from jumpmq.queues import Queue
from jumpmq.topology import Exchange
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.exchanges import Destination


def bound_queues(exchange: Exchange) -> Iterator[Queue | DeclaredQueue]:
    """Yield the queues, local and remote, reached by an exchange directly or through other exchanges, without
    duplicates.

    Exclusive queues are left out: only their connection may use them.
    """
    found: set[Destination] = {exchange}
    exchanges = [exchange]
    for one in exchanges:
        for destination in list(one.bindings.values()):
            if destination in found:
                continue
            found.add(destination)
            if isinstance(destination, Exchange):
                exchanges.append(destination)
            elif destination.owner is None:
                yield destination
