"""Addresses of homes on remote machines."""

from collections.abc import Callable, Mapping
from typing import Protocol

Address = tuple[str, int]
"""Host, by name or number, and port."""


class Directory(Protocol):
    """Directory of the homes' addresses, updated as homes come, go and move.

    Attributes:
        cluster: identity of the cluster, exchanged by all homes.
        secret: the secret shared by all homes; at least 32 random octets, as text.
        addresses: the link address of each home that has announced one.
        on_change: callbacks for a change of ``addresses``.
    """

    cluster: str
    secret: str
    on_change: list[Callable[[], None]]

    @property
    def addresses(self) -> Mapping[int, Address]: ...

    def announce(self, home: int, port: int) -> None:
        """Publish the port on which this host accepts links to a home."""
