"""Numbers of objects by creating user, for limits; and numbers of queues by home."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.limits import reached
from jumpmq.topology.users import User

What = Literal["queue", "binding"]

OF_TOKEN = "\x1ftoken"
"""Suffix of a user name in ownership records, for users authenticated by token."""


class Holdings:
    """Numbers of queues and bindings by creating user, in all virtual hosts; objects without a user do not count. Token
    users count separately from stored users of equal name, against the same limits.

    Attributes:
        queues_by_home: number of queues, by home.
    """

    def __init__(self) -> None:
        self.queues_by_home: Counter[int] = Counter()
        self._counts: Counter[tuple[str, What]] = Counter()

    def add(self, user: str, what: What) -> None:
        """Count a new object of the user."""
        if user:
            self._counts[user, what] += 1

    def remove(self, user: str, what: What, count: int = 1) -> None:
        """Remove ``count`` objects of the user."""
        if user:
            self._counts[user, what] -= count
            if not self._counts[user, what]:
                del self._counts[user, what]

    def require(self, users: Mapping[str, User], owner: str, what: What, act: str) -> None:
        """Refuse unless the user may have one more object.

        Args:
            users: all stored users, by name.
            owner: the future owner.
            act: refused operation, such as ``declare queue 'q'``.

        Raises:
            PreconditionFailed: the user's limit is reached.
        """
        user = users.get(owner.removesuffix(OF_TOKEN))
        if user is None or not user.limits:
            return
        limit = reached(user.limits, f"max-{what}s", self._counts[owner, what])
        if limit is not None:
            raise PreconditionFailed(f"cannot {act}: {what} limit of user '{user.name}' ({limit}) is reached")
