"""Whose account a user name stands for: one that is kept here, or one that came with a token."""

import time

from jumpmq.topology import Topology
from jumpmq.topology.users import User


class TokenUser(str):
    """The name of a user who came with a token, and what the token allows.

    It goes wherever the name of a user goes, so that the same name with another token, or with a password, is judged by
    that.

    Attributes:
        granted: what the token allows.
        expires_at: seconds since the epoch; None if never.
    """

    __slots__ = ("expires_at", "granted")

    granted: User
    expires_at: float | None

    def __new__(cls, granted: User, expires_at: float | None) -> "TokenUser":
        made = super().__new__(cls, granted.name)
        made.granted, made.expires_at = granted, expires_at
        granted.name = made
        return made

    @property
    def is_expired(self) -> bool:
        """Whether the token's time is over."""
        return self.expires_at is not None and time.time() >= self.expires_at


def account(topology: Topology, user: str) -> User | None:
    """The account of a user; None if it is deleted, or the token has expired."""
    if isinstance(user, TokenUser):
        return None if user.is_expired else user.granted
    return topology.users.get(user)


def same_user(one: str, other: str) -> bool:
    """Whether two names stand for one user: a token whose subject is called as a user who is kept here does not make
    its bearer that user."""
    return one == other and isinstance(one, TokenUser) == isinstance(other, TokenUser)


def is_user(user: str, name: str) -> bool:
    """Whether a user is the one of this name who is kept here."""
    return user == name and not isinstance(user, TokenUser)
