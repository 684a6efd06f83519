"""Addresses of homes on remote machines."""

from collections.abc import Callable, Mapping
from typing import Protocol

Address = tuple[str, int]
"""Host, by name or number, and port."""


class Directory(Protocol):
    """Directory of the homes' addresses, updated as homes come, go and move.

    Attributes:
        cluster: identity of the cluster, exchanged by all homes.
        secret: what all of them know; at least 32 random octets, as text.
        addresses: address of each home for links; none before the home is announced.
        on_change: called when ``addresses`` has changed.
    """

    cluster: str
    secret: str
    on_change: list[Callable[[], None]]

    @property
    def addresses(self) -> Mapping[int, Address]: ...

    def announce(self, home: int, port: int) -> None:
        """Announce a port of the host for links to a home of the process."""
