"""Records of queues in the store, beside their messages; :mod:`jumpmq.store.kinds` has their kinds and grammars."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jumpmq.store.kinds import ATTEMPTS, DELIVERED, ENTERED, GROUP_OFFSET, OWNER_EPOCH, PRIORITIES, RETRY, SEQUENCE


@dataclass
class QueueRecords:
    """Records of a queue in the store.

    Attributes:
        clean: True after a clean stop; otherwise every message may have been delivered before.
        next_seq: lowest unreserved number.
        last_delivered: highest number delivered before a clean stop.
        attempts: number of deliveries, by message number.
        retries: rests of returned messages, by message number.
        offsets: offsets of consumer groups by name.
        entered: offset up to which buffered messages have entered a stream; None for a stream that does not move.
        has_priorities: True if the queue may hold messages with a higher priority.
    """

    clean: bool = False
    next_seq: int = 1
    last_delivered: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    retries: dict[int, list[Any]] = field(default_factory=dict)
    offsets: dict[str, Any] = field(default_factory=dict)
    entered: int | None = None
    has_priorities: bool = False

    @property
    def delivered_seq(self) -> int | None:
        """Highest delivered number; None if unknown, so that every message may have been delivered before."""
        return self.last_delivered if self.clean else None

    def add(self, kind: str, rest: str, value: Any) -> None:
        """Add a record.

        Args:
            rest: the key after the queue's number.
        """
        if kind == ATTEMPTS:
            self.attempts[int(rest)] = value
        elif kind == RETRY:
            self.retries[int(rest)] = value
        elif kind == GROUP_OFFSET:
            self.offsets[rest] = value
        else:
            setattr(self, _SINGLE[kind], value)


_SINGLE = {
    SEQUENCE: "next_seq",
    DELIVERED: "last_delivered",
    PRIORITIES: "has_priorities",
    ENTERED: "entered",
}
"""Kinds with one record per queue, and the attribute of :class:`QueueRecords`."""

OF_QUEUES = frozenset({*_SINGLE, ATTEMPTS, RETRY, GROUP_OFFSET})
"""Kinds whose key begins with the id of a queue."""


def records_of_queues(records: Iterable[tuple[str, str, Any]], *, clean: bool) -> dict[int, QueueRecords]:
    """Return the records of queues, by queue number.

    Args:
        records: kind, key and value of all records in the store.
        clean: True after a clean stop.
    """
    found: dict[int, QueueRecords] = {}
    for kind, key, value in records:
        if kind in OF_QUEUES:
            number, _, rest = key.partition(" ")
            found.setdefault(int(number), QueueRecords(clean)).add(kind, rest, value)
    return found


def owner_epoch(records: Iterable[tuple[str, str, Any]]) -> int:
    """Return the ceiling of owner epochs; 0 without a record."""
    return max((value for kind, _, value in records if kind == OWNER_EPOCH), default=0)
