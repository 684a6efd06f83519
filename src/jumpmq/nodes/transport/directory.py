"""Where the homes of other machines are."""

from collections.abc import Callable, Mapping
from typing import Protocol

Address = tuple[str, int]
"""Host, by name or number, and port."""


class Directory(Protocol):
    """Knows where homes are. What it says changes as they come, go and move.

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
        """A home of this process takes links at a port of this host."""


class FixedDirectory:
    """A directory in memory, which homes of one process share.

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
        """A home has an address, perhaps another than before."""
        self.addresses[home] = address
        self._tell()

    def remove(self, home: int) -> None:
        """There is no such home any more."""
        self.addresses.pop(home, None)
        self._tell()

    def _tell(self) -> None:
        for told in list(self.on_change):
            told()
