"""Users, and their permissions in virtual hosts."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology import patterns

Operation = Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """A regular expression per operation, searched in the name of the resource; an empty one allows nothing."""

    configure: str
    write: str
    read: str

    def check(self) -> None:
        """
        Raises: PreconditionFailed: a regular expression is invalid.
        """
        _check_patterns({"configure": self.configure, "write": self.write, "read": self.read})

    def allows(self, operation: Operation, name: str) -> bool:
        """Return True if the operation is allowed on an exchange or queue (``""``: the default exchange)."""
        pattern: str = getattr(self, operation)
        return patterns.search(pattern or "^$", name or "amq.default")

    def allows_any(self, operation: Operation) -> bool:
        """Return True if the operation may be allowed on some name, that is, if the expression is not empty."""
        return getattr(self, operation) not in ("", "^$")


@dataclass(frozen=True, slots=True)
class TopicPermissions:
    """A regular expression per operation, searched in the routing keys of publishes to a topic exchange, or in binding
    keys.

    ``{username}`` and ``{vhost}`` are replaced by the names of user and virtual host, taken literally. ``{client_id}``
    is for protocols whose clients have an id, and is not replaced here.
    """

    write: str
    read: str

    def check(self) -> None:
        """
        Raises: PreconditionFailed: a regular expression is invalid.
        """
        _check_patterns({"write": self.write, "read": self.read})

    def allows(self, operation: Literal["write", "read"], key: str, user: str, vhost: str) -> bool:
        """Return True if the user may write with a routing key, or read by a binding key."""
        pattern = self.write if operation == "write" else self.read
        expanded = _expanded(pattern or "^$", user, vhost)
        return expanded is not None and expanded.matches(key)


@lru_cache(maxsize=4096)
def _expanded(pattern: str, user: str, vhost: str) -> patterns.Pattern | None:
    text = pattern.replace("{username}", patterns.quoted(user)).replace("{vhost}", patterns.quoted(vhost))
    try:
        return patterns.Pattern(text)
    except patterns.InvalidPattern:
        return None


def _check_patterns(found: dict[str, str]) -> None:
    for operation, pattern in found.items():
        try:
            patterns.compiled(pattern)
        except patterns.InvalidPattern as error:
            raise PreconditionFailed(f"invalid regular expression {pattern!r} for {operation}: {error}") from None


@dataclass(slots=True)
class User:
    """A user.

    Attributes:
        password_hash: opaque hash.
        permissions: by virtual host.
        topic_permissions: by virtual host and topic exchange; exchanges without an entry are allowed.
        limits: the limits that are set (:data:`jumpmq.topology.limits.USER_LIMITS`).
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permissions] = field(default_factory=dict)
    topic_permissions: dict[tuple[str, str], TopicPermissions] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
