"""Addresses of homes on remote machines."""

from collections.abc import Callable, Mapping
from typing import Protocol

Address = tuple[str, int]
"""Host, by name or number, and port."""


class Directory(Protocol):
    """Directory of the homes' addresses, updated as homes come, go and move.

    Attributes:
        cluster: its identity, which all homes name to each other.
        secret: what all of them know; at least 32 random octets, as text.
        addresses: where links to each home go; none before it has been announced.
        on_change: called when ``addresses`` has changed.
    """

    cluster: str
    secret: str
    on_change: list[Callable[[], None]]

    @property
    def addresses(self) -> Mapping[int, Address]: ...

    def announce(self, home: int, port: int) -> None:
        """Announce a port of the host for links to a home of the process."""


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
        self._host = host  # of all of them

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
