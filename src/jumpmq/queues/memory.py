"""The account of memory: every octet that the broker holds for messages, by what it is held for.

The holder of a message charges it, and gives back the same when it lets go; so what it costs to know the total is an
addition now and then, and no walk over queues. The account only counts. Queues read from it when bodies are to be
paged, the broker when publishers are to be blocked.
"""

from jumpmq.amqp.messages import Message
from jumpmq.queues.runs import octets

OVERHEAD = 240
"""Octets that a message in memory takes beside those of its body, routing key and properties (measured: an object for
it and one for each of the three). What messages share, as the routing key of a run, counts for each."""

PARKED = 24
"""Octets that a message takes which was taken, and is on disk alone (measured)."""

PAGING_SHARE = 0.5
"""Of the limit: beyond it bodies are paged, as RabbitMQ's ``vm_memory_high_watermark_paging_ratio``."""

PAGED = bytes(bytearray(b"(on disk)"))
"""The body of a delivery while it is in the store alone. No other body is this very object."""

UNLIMITED = 1 << 62
"""A limit that nothing reaches."""

KINDS = ("ready", "unacknowledged", "reserved", "staged", "unsent", "unfinished", "transactions", "channels", "answers")
"""What memory is held for.

Messages that wait in a queue; that were delivered; that a group of readers holds; that left a queue and are still
being dealt with, or are on their way to a stream's file; octets that a client has not read yet; bodies of which frames
are still to come; publishes before their commit; open channels and their consumers; answers over HTTP while they are
made and sent.
"""


def held_octets(messages: list[Message]) -> int:
    """Octets that messages in memory take."""
    return octets(messages)[1] + OVERHEAD * len(messages)


class MemoryAccount:
    """What one broker holds for messages. For the broker's thread.

    Attributes:
        by_kind: octets by what they are held for, one of :data:`KINDS`.
        total: all of them.
        limit: octets at which publishers are blocked.
    """

    __slots__ = ("by_kind", "limit", "total")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.by_kind = dict.fromkeys(KINDS, 0)
        self.total = 0
        self.limit = limit

    def __repr__(self) -> str:
        held = ", ".join(f"{kind} {octets}" for kind, octets in self.by_kind.items() if octets)
        return f"<MemoryAccount {self.total} of {self.limit}: {held or 'nothing'}>"

    def charge(self, kind: str, octets: int) -> None:
        """More octets are held for ``kind``; a negative number releases some.

        Raises:
            KeyError: there is no such kind.
        """
        self.by_kind[kind] += octets
        self.total += octets

    def move(self, source: str, target: str, octets: int) -> None:
        """What was held for one kind is now held for another."""
        self.by_kind[source] -= octets
        self.by_kind[target] += octets

    @property
    def tight(self) -> bool:
        """Whether bodies are to be paged."""
        return self.total > self.limit * PAGING_SHARE

    @property
    def exhausted(self) -> bool:
        """Whether publishers are to be blocked. A limit of 0 always blocks, as with RabbitMQ."""
        return self.total >= self.limit
