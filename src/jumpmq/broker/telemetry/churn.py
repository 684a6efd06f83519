"""Churn of connections, channels and queues, counted since the broker's start."""

from __future__ import annotations

from dataclasses import dataclass

from jumpmq.topology import Change, DeclareQueue, DeleteQueue, Topology
from jumpmq.topology.definitions import home_of


@dataclass(slots=True, eq=False)
class Churn:
    """Counts by RabbitMQ's names.

    Attributes:
        queue_declared: declarations, including those of existing queues.
    """

    connection_created: int = 0
    connection_closed: int = 0
    channel_created: int = 0
    channel_closed: int = 0
    queue_declared: int = 0
    queue_created: int = 0
    queue_deleted: int = 0

    def follow(self, topology: Topology, change: Change) -> None:
        """Count a change: queues are counted by home."""
        match change:
            case DeclareQueue(definition) if definition.home == topology.home:
                self.queue_declared += 1
                queue = topology.vhosts[definition.vhost].declared.get(definition.name)
                self.queue_created += queue is not None and queue.id == definition.id
            case DeleteQueue(id=id) if home_of(id) == topology.home:
                self.queue_deleted += 1
