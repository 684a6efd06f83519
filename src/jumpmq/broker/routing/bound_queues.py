"""Which queues an exchange feeds."""

from jumpmq.queues import Queue
from jumpmq.topology import Exchange


def bound_queues(exchange: Exchange) -> list[Queue]:
    """The queues that an exchange routes to, directly or through other exchanges, by name."""
    queues: set[Queue] = set()
    exchanges = [exchange]
    for one in exchanges:
        for destination in one.bindings.values():
            if isinstance(destination, Queue):
                queues.add(destination)
            elif destination not in exchanges:
                exchanges.append(destination)
    return sorted(queues, key=lambda queue: queue.name)
