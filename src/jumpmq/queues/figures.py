"""Statistics of a queue's messages in addition to their number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageFigures:
    """Octets of bodies in a queue, and locations of messages.

    Attributes:
        ready_octets, unacknowledged_octets: octets of bodies.
        ready_in_memory, unacknowledged_in_memory: number of messages with bodies in memory.
        octets_in_memory: octets of bodies in memory.
        persistent, persistent_octets: messages that survive a restart.
        paged_out, paged_out_octets: ready messages that are only on disk, for lack of memory.
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
