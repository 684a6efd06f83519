"""Users, and what they may do in a virtual host."""

import re
from dataclasses import dataclass, field
from typing import Literal

from jumpmq.amqp.errors import PreconditionFailed

Operation = Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """One regular expression an operation, searched in the name of the resource; an empty one allows nothing."""

    configure: str
    write: str
    read: str

    def __post_init__(self) -> None:
        """
        Raises:
            PreconditionFailed: one is no regular expression.
        """
        for operation in ("configure", "write", "read"):
            pattern = getattr(self, operation)
            try:
                re.compile(pattern)
            except re.error as error:
                raise PreconditionFailed(f"invalid regular expression {pattern!r} for {operation}: {error}") from None

    def allows(self, operation: Operation, name: str) -> bool:
        """Whether the operation is allowed on the exchange or queue of this name (``""``: the default exchange)."""
        pattern: str = getattr(self, operation)
        return re.search(pattern or "^$", name or "amq.default") is not None


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
