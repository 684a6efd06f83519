"""How much each user has made that is there, which limits are held against; and how many queues are at each home."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.limits import reached
from jumpmq.topology.users import User

What = Literal["queue", "binding"]

OF_TOKEN = "\x1ftoken"
"""What the name of a user who came with a token ends with, where it says whose something is."""


class Holdings:
    """Queues and bindings by the user who made them, in all virtual hosts; what no user made is not counted. Who comes
    with a token is not the kept user of that name: the same limits hold, and count apart.

    Attributes:
        queues_by_home: how many queues there are, by the number of their home.
    """

    def __init__(self) -> None:
        self.queues_by_home: Counter[int] = Counter()
        self._counts: Counter[tuple[str, What]] = Counter()

    def add(self, user: str, what: What) -> None:
        """The user has made one more."""
        if user:
            self._counts[user, what] += 1

    def remove(self, user: str, what: What, count: int = 1) -> None:
        """So many that the user had made are gone."""
        if user:
            self._counts[user, what] -= count
            if not self._counts[user, what]:
                del self._counts[user, what]

    def require(self, users: Mapping[str, User], owner: str, what: What, act: str) -> None:
        """Refuse unless a user may have one more.

        Args:
            users: all that are kept, by name.
            owner: whose it will be.
            act: what is refused, such as ``declare queue 'q'``.

        Raises:
            PreconditionFailed: there are as many as there may be.
        """
        user = users.get(owner.removesuffix(OF_TOKEN))
        if user is None or not user.limits:
            return
        limit = reached(user.limits, f"max-{what}s", self._counts[owner, what])
        if limit is not None:
            raise PreconditionFailed(f"cannot {act}: {what} limit of user '{user.name}' ({limit}) is reached")
