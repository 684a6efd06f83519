"""Access to the management port by users' tags, as in RabbitMQ's management plugin.

Every request needs a user with a tag for the port. Some resources need more: nodes a ``monitoring`` user, parameters a
``policymaker``, users and definitions an ``administrator``. Users see the virtual hosts in which they have permissions;
administrators see all. An operation on a queue or exchange needs the same permission as over AMQP, also for
administrators.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from jumpmq.broker.security.accounts import Principal
from jumpmq.http.plumbing.errors import Unauthorized
from jumpmq.topology import User

T = TypeVar("T")


class Access(Enum):
    """Access level of a resource: sufficient tags, and RabbitMQ's text for users without any."""

    MANAGEMENT = ({"management", "policymaker", "monitoring", "administrator"}, "Not management user")
    POLICYMAKER = ({"policymaker", "administrator"}, "User not authorised to access object")
    PLANNING = ({"policymaker", "monitoring", "administrator"}, "Not monitor user")
    MONITORING = ({"monitoring", "administrator"}, "Not monitor user")
    ADMINISTRATOR = ({"administrator"}, "Not administrator user")

    def require(self, user: User) -> None:
        """
        Raises: Unauthorized: no tag of the user gives this access.
        """
        tags, refusal = self.value
        if tags.isdisjoint(user.tags):
            raise Unauthorized(refusal)


def sees_all_vhosts(user: User) -> bool:
    """Return True if the user sees all virtual hosts."""
    return "administrator" in user.tags


def monitors(user: User) -> bool:
    """Return True if the user sees connections of all users, and the names of all virtual hosts."""
    return not {"monitoring", "administrator"}.isdisjoint(user.tags)


def check_virtual_host(user: User, vhost: str) -> None:
    """
    Raises:
        Unauthorized: the user has no permissions in the virtual host.
    """
    if not sees_all_vhosts(user) and vhost not in user.permissions:
        raise Unauthorized("User not authorised to access virtual host")


def owned(user: User, principal: Principal, items: list[T], owner: Callable[[T], tuple[str, bool] | None]) -> list[T]:
    """Return the connections, or parts of connections, visible to the user: all, or the user's own."""
    return items if monitors(user) else [item for item in items if owner(item) == principal.identity]
