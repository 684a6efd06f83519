"""Users, and what they may do in a virtual host."""

from dataclasses import dataclass, field
from typing import Literal

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology import patterns

Operation = Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """One regular expression an operation, searched in the name of the resource; an empty one allows nothing."""

    configure: str
    write: str
    read: str

    def check(self) -> None:
        """
        Raises:
            PreconditionFailed: one is no regular expression that is taken.
        """
        for operation in ("configure", "write", "read"):
            pattern = getattr(self, operation)
            try:
                patterns.compiled(pattern)
            except patterns.InvalidPattern as error:
                raise PreconditionFailed(f"invalid regular expression {pattern!r} for {operation}: {error}") from None

    def allows(self, operation: Operation, name: str) -> bool:
        """Whether the operation is allowed on the exchange or queue of this name (``""``: the default exchange)."""
        pattern: str = getattr(self, operation)
        return patterns.search(pattern or "^$", name or "amq.default")


@dataclass(slots=True)
class User:
    """A user.

    Attributes:
        password_hash: opaque here.
        permissions: by virtual host.
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permissions] = field(default_factory=dict)
