"""Statistics of a queue's messages in addition to their number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageFigures:
    """Octets of bodies in a queue, and location of messages.

    Attributes:
        ready_octets, unacknowledged_octets: of bodies.
        ready_in_memory, unacknowledged_in_memory: messages whose bodies are in memory.
        octets_in_memory: of those.
        persistent, persistent_octets: messages that outlive a restart.
        paged_out, paged_out_octets: ready messages that are on disk for want of memory alone.
    """

    ready_octets: int
    unacknowledged_octets: int
    ready_in_memory: int
    unacknowledged_in_memory: int
    octets_in_memory: int
    persistent: int
    persistent_octets: int
    paged_out: int
    paged_out_octets: int
