"""Addresses of homes, set by tests."""

from collections.abc import Callable

from jumpmq.nodes.transport.directory import Address


class FixedDirectory:
    """Directory in memory, shared by the homes of a process.

    Args:
        host: the address of all homes.
    """

    def __init__(self, cluster: str, secret: str, host: str = "127.0.0.1") -> None:
        self.cluster = cluster
        self.secret = secret
        self.on_change: list[Callable[[], None]] = []
        self.addresses: dict[int, Address] = {}
        self._host = host  # secrets of all homes

    def announce(self, home: int, port: int) -> None:
        """See :meth:`Directory.announce`."""
        self.put(home, (self._host, port))

    def put(self, home: int, address: Address) -> None:
        """Set the address of a home, possibly a changed address."""
        self.addresses[home] = address
        self._tell()

    def remove(self, home: int) -> None:
        """Remove a home."""
        self.addresses.pop(home, None)
        self._tell()

    def _tell(self) -> None:
        for told in list(self.on_change):
            told()
