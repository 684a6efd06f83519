"""Principals and their accounts: a stored account by name, or the permissions of a token."""

import time
from dataclasses import dataclass

from jumpmq.topology import Topology
from jumpmq.topology.holdings import OF_TOKEN
from jumpmq.topology.users import User


@dataclass(frozen=True, eq=False, slots=True)
class Principal:
    """A logged-in user.

    Principals are equal if name and kind of login are equal: a token's subject is not the stored user of that name.

    Attributes:
        name: displayed name of the user.
        granted: permissions of a token; None if the stored permissions of the name count.
        until: when the token expires, seconds since the epoch; None if never.
    """

    name: str
    granted: User | None = None
    until: float | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> tuple[str, bool]:
        """Name, and True if a token vouches for the name."""
        return self.name, self.granted is not None

    @property
    def owner(self) -> str:
        """Owner of the user's queues and bindings: see :class:`~jumpmq.topology.holdings.Holdings`."""
        return self.name if self.granted is None else self.name + OF_TOKEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def is_kept(self, name: str) -> bool:
        """Return True if the principal is the stored user of this name."""
        return self.identity == (name, False)

    def account(self, topology: Topology) -> User | None:
        """Return the user's account; None if the user is deleted, or the token has expired."""
        if self.granted is None:
            return topology.users.get(self.name)
        return None if self.until is not None and time.time() >= self.until else self.granted


NO_ONE = Principal("")
"""Principal of a connection before login."""
