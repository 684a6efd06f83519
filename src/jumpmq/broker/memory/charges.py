"""Memory charged by a connection to the broker's account."""

from jumpmq.queues.memory import MemoryAccount

PASSING = frozenset({"unsent", "unfinished"})
"""Kinds checked with each read and write, where held; the kinds of channels are permanent."""

CHANNEL, CONSUMER = 1280, 640
"""Octets per open channel and per consumer (measured)."""


class Charges:
    """Amounts held by kind. Differences are charged to the account.

    Attributes:
        held: octets by kind, without kinds that hold nothing.
        passing: True if the connection holds octets that change with each read and write (:data:`PASSING`).
    """

    def __init__(self, account: MemoryAccount) -> None:
        self.held: dict[str, int] = {}
        self.passing = False
        self._account = account

    def set(self, kind: str, octets: int) -> None:
        """Set the octets held for ``kind``."""
        charged = self.held.pop(kind, 0)
        if octets:
            self.held[kind] = octets
        if octets != charged:
            self._account.charge(kind, octets - charged)
            if kind in PASSING:
                self.passing = not PASSING.isdisjoint(self.held)

    def add(self, kind: str, octets: int) -> None:
        """Add octets held for ``kind``; a negative number releases octets."""
        self.set(kind, self.held.get(kind, 0) + octets)

    def release(self) -> None:
        """Release everything."""
        for kind in list(self.held):
            self.set(kind, 0)
