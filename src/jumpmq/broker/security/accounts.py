"""Who asks, and what account that is: the one that is kept here by that name, or what a token allows its bearer."""

import time
from dataclasses import dataclass

from jumpmq.topology import Topology
from jumpmq.topology.holdings import OF_TOKEN
from jumpmq.topology.users import User


@dataclass(frozen=True, eq=False, slots=True)
class Principal:
    """A user who has logged in.

    Two are the same user where name and way of logging in are: a token whose subject is called as a user who is kept
    here does not make its bearer that user.

    Attributes:
        name: of the user, as it is shown.
        granted: what a token allows; None where the permissions that are kept for the name decide.
        until: when the token expires, seconds since the epoch; None if never.
    """

    name: str
    granted: User | None = None
    until: float | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> tuple[str, bool]:
        """Name, and whether a token vouches for it."""
        return self.name, self.granted is not None

    @property
    def owner(self) -> str:
        """Whose queues and bindings are that the user makes: see :class:`~jumpmq.topology.holdings.Holdings`."""
        return self.name if self.granted is None else self.name + OF_TOKEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def is_kept(self, name: str) -> bool:
        """Whether this is the user of that name who is kept here."""
        return self.identity == (name, False)

    def account(self, topology: Topology) -> User | None:
        """What the user may do; None if the user is deleted, or the token has expired."""
        if self.granted is None:
            return topology.users.get(self.name)
        return None if self.until is not None and time.time() >= self.until else self.granted


NO_ONE = Principal("")
"""Of a connection that has not logged in."""
