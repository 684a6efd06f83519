"""Definitions as values: used in changes and records, and by the management API's listings and imports."""

import sys
from dataclasses import dataclass
from typing import Any

from jumpmq.queues import DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments

HOME_BITS = 40
"""Bits of a queue's id below the number of its home."""


def home_of(id: int) -> int:
    """Return the home in a queue's id; ids from before the introduction of homes belong to the first home."""
    return id >> HOME_BITS or 1


@dataclass(frozen=True, slots=True)
class ExchangeDefinition:
    """An exchange as declared."""

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = NO_ARGUMENTS

    def shown(self) -> dict[str, Any]:
        """Return the keys of the management API and of definitions files, with arguments as plain values."""
        return {
            "name": self.name,
            "vhost": self.vhost,
            "type": self.type,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments.plain(),
        }


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """Definition of a queue.

    Attributes:
        owner: identity of the connection that owns an exclusive queue.
        node: node of its home at the declaration, "" before; a shard's name also has the node.
        id: ``home << 40 | counter``, never reused; 0 before the declaration.
        home: number of the home with its messages.
        user: user of the first declaration; "" without one, for example for shards.
        before: during a move, the id at the previous home; otherwise 0.
        original: for a moved stream, the id of its declaration; otherwise 0.
    """

    vhost: str
    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    owner: str | None = None
    node: str = ""
    id: int = 0
    user: str = ""
    home: int = 1
    before: int = 0
    original: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", sys.intern(self.name))  # shared with the bindings

    @property
    def identity(self) -> int:
        """Id that distinguishes redeclared queues of equal name; a moved stream keeps both id and offsets."""
        return self.original or self.id

    @property
    def home_before(self) -> int:
        """Home that the queue's messages are migrating from; 0 if none."""
        return home_of(self.before) if self.before else 0

    @property
    def is_kept(self) -> bool:
        """True if the queue survives a restart. Exclusive queues end with their connection."""
        return self.durable and not self.exclusive

    @property
    def type(self) -> str:
        """The queue type: ``classic`` unless given by ``x-queue-type``."""
        return self.arguments.text("x-queue-type") or DEFAULT_QUEUE_TYPE

    @property
    def group_size(self) -> int:
        """Number of copies that a quorum queue or stream asks for; 0 unless it does."""
        field = self.arguments.get(QUEUE_TYPES[self.type].group_size_argument)
        return field.value if field is not None and isinstance(field.value, int) else 0

    def numbered(self, id: int, node: str) -> "QueueDefinition":
        """Return a copy with an id, and the node of its home. (``dataclasses.replace`` takes three times as long.)"""
        declared = self.vhost, self.name, self.durable, self.exclusive, self.auto_delete, self.arguments, self.owner
        return QueueDefinition(*declared, node, id, self.user, self.home)

    def shown(self) -> dict[str, Any]:
        """Return the keys of definitions files and of the management API, with arguments as plain values."""
        return {
            "name": self.name,
            "vhost": self.vhost,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "arguments": self.arguments.plain(),
        }
