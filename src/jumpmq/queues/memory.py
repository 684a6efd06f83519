"""The memory account: octets held for messages, by purpose.

The holder of a message charges the account, and releases the same amount when it drops the message. The total thus
costs an addition now and then, and no walk over queues. The account only counts: queues read it to decide about paging,
and the broker to decide about blocking publishers.
"""

from enum import StrEnum

from jumpmq.amqp.messages import Message
from jumpmq.store.layout import octets

OVERHEAD = 240
"""Memory of a message in addition to body, routing key and properties, in octets (measured: an object for the message
and one per part). Shared parts, such as a run's routing key, count for every message."""

PARKED = 24
"""Memory of a taken message that is only on disk, in octets (measured)."""

RUN_ON_DISK = 250
"""Memory of a run of taken messages that are only on disk, however many, in octets (measured)."""

IN_COLUMNS = 28
"""Memory of a message laid out in columns, in addition to body, routing key and properties, in octets."""

PAGING_SHARE = 0.5
"""Share of the limit above which bodies are paged, as RabbitMQ's ``vm_memory_high_watermark_paging_ratio``."""

PAGED = bytes(bytearray(b"(on disk)"))
"""Body of a paged-out delivery. No other body is this object."""

UNLIMITED = 1 << 62
"""Unreachable limit."""

KINDS = ("ready", "unacknowledged", "reserved", "staged", "unsent", "unfinished", "transactions", "channels", "answers")
"""Purposes of memory.

Ready messages; delivered messages; messages held by a reader group; messages that have left a queue and are still
processed, or are on the way to a stream's file; octets not read by a client yet; bodies with missing frames; publishes
before their commit; open channels and their consumers; HTTP answers while they are made and sent.
"""


class Held(StrEnum):
    """State of taken messages; each is also a kind in the memory account."""

    __hash__ = str.__hash__  # faster than the hash of an enumeration

    UNACKNOWLEDGED = "unacknowledged"
    RESERVED = "reserved"


def held_octets(messages: list[Message]) -> int:
    """Return the memory of messages, in octets."""
    return octets(messages)[1] + OVERHEAD * len(messages)


class MemoryAccount:
    """Memory held by one broker for messages. Used in the broker's thread only.

    Attributes:
        by_kind: octets by purpose, one of :data:`KINDS`.
        total: octets of all purposes.
        limit: octets above which publishers are blocked.
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
        """Add octets for a purpose; a negative number releases octets.

        Raises:
            KeyError: unknown purpose.
        """
        self.by_kind[kind] += octets
        self.total += octets

    def move(self, source: str, target: str, octets: int) -> None:
        """Move octets between kinds."""
        self.by_kind[source] -= octets
        self.by_kind[target] += octets

    @property
    def tight(self) -> bool:
        """True if bodies should be paged out."""
        return self.total > self.limit * PAGING_SHARE

    @property
    def exhausted(self) -> bool:
        """True if publishers should be blocked. A limit of 0 always blocks, as in RabbitMQ."""
        return self.total >= self.limit
