"""What one connection has charged to the broker's account of memory."""

from jumpmq.queues.memory import MemoryAccount


class Charges:
    """Amounts by kind, as they are now: the account gets the differences."""

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._charged: dict[str, int] = {}

    def set(self, kind: str, octets: int) -> None:
        """So much is held for ``kind``."""
        if octets != (charged := self._charged.get(kind, 0)):
            self._charged[kind] = octets
            self._account.charge(kind, octets - charged)

    def add(self, kind: str, octets: int) -> None:
        """So much more is held for ``kind``; a negative number releases some."""
        self.set(kind, self._charged.get(kind, 0) + octets)

    def release(self) -> None:
        """Nothing is held any more."""
        for kind in self._charged:
            self.set(kind, 0)
