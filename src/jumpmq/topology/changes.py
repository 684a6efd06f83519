"""The changes of definitions: one small value each. :meth:`Topology.apply` is the only way they take effect.

They hold plain data only, so that they can be logged and replayed. A change is generic in what applying it returns.

``connection`` names the connection that asks; None is the broker itself or an operator, who may touch exclusive queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.bindings import Binding

if TYPE_CHECKING:  # what changes return; these modules import this one
    from jumpmq.queues import Queue  # noqa: F401
    from jumpmq.topology.exchanges.base import Exchange  # noqa: F401
    from jumpmq.topology.vhost import VirtualHost  # noqa: F401

R = TypeVar("R")


class Change(Generic[R]):
    """Base of all changes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AddVirtualHost(Change["VirtualHost"]):
    """Add a virtual host with the predeclared exchanges; nothing changes where it exists."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteVirtualHost(Change[None]):
    """Delete a virtual host with all that is in it, and all permissions in it."""

    name: str


@dataclass(frozen=True, slots=True)
class PutUser(Change[None]):
    """Add a user, or replace password and tags of an existing one.

    Attributes:
        password_hash: opaque here; the broker makes and verifies it.
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteUser(Change[None]):
    """Delete a user with all permissions."""

    name: str


@dataclass(frozen=True, slots=True)
class SetPermissions(Change[None]):
    """Set what a user may do in a virtual host: a regular expression each, searched in the names of resources."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ClearPermissions(Change[None]):
    """Take a user's permissions in a virtual host away."""

    user: str
    vhost: str


@dataclass(frozen=True, slots=True)
class DeclareExchange(Change["Exchange"]):
    """Declare an exchange; one that exists must be equivalent."""

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = NO_ARGUMENTS


@dataclass(frozen=True, slots=True)
class DeleteExchange(Change[None]):
    """Delete an exchange and its bindings; nothing changes where there is none.

    Attributes:
        if_unused: refuse while it has bindings.
    """

    vhost: str
    name: str
    if_unused: bool = False


@dataclass(frozen=True, slots=True)
class DeclareQueue(Change["Queue"]):
    """Declare a queue; one that exists must be equivalent.

    Attributes:
        connection: the owner, if the queue is exclusive.
        server_named: whether the broker has made up the name, which may then start with ``amq.``.
    """

    vhost: str
    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    connection: str | None = None
    server_named: bool = False


@dataclass(frozen=True, slots=True)
class DeleteQueue(Change[int]):
    """Delete a queue, its messages and bindings; returns how many messages were ready, 0 where there is no queue.

    Attributes:
        if_unused: refuse while it has consumers.
        if_empty: refuse while it has ready messages.
    """

    vhost: str
    name: str
    if_unused: bool = False
    if_empty: bool = False
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class Bind(Change[None]):
    """Add a binding; nothing changes where it exists."""

    vhost: str
    binding: Binding
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class Unbind(Change[None]):
    """Remove a binding; nothing changes where there is none."""

    vhost: str
    binding: Binding
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class SetPolicy(Change[None]):
    """Add a policy, or replace the one of this name; it takes effect at once.

    Attributes:
        pattern: regular expression, searched in the names of queues and exchanges.
        definition: a JSON object; :mod:`jumpmq.topology.policy_definitions` has its keys.
        priority: of all policies that match an object the highest is in force.
        apply_to: ``queues``, ``exchanges`` or ``all``.
    """

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"


@dataclass(frozen=True, slots=True)
class SetOperatorPolicy(Change[None]):
    """As :class:`SetPolicy`, for operator policies: they take limits only, and are merged with policies."""

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"


@dataclass(frozen=True, slots=True)
class ClearPolicy(Change[None]):
    """Take a policy away."""

    vhost: str
    name: str


@dataclass(frozen=True, slots=True)
class ClearOperatorPolicy(Change[None]):
    """Take an operator policy away."""

    vhost: str
    name: str
