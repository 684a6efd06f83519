"""Changes of definitions as small values. :meth:`Topology.propose` is the only way to apply them.

They hold plain data only, and all that their effect depends on, so that a log of them can be replayed in another
process, in the same order, to the same state: a queue brings its home, a user the hash of the password. What only a
queue's home can judge (whether it is in use, or empty) is judged before there is a change.

``connection`` is the identity of the connection that asks; None is the broker itself or an operator, who may touch
exclusive queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition


class Change:
    """Base of all changes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AddHome(Change):
    """A home starts on a node, possibly after a different one; missing shards of the node are made.

    Its queues that do not outlive its process, transient and exclusive ones, are gone.

    Attributes:
        home: its number, from 1 on.
    """

    home: int
    node: str


@dataclass(frozen=True, slots=True)
class ForgetNode(Change):
    """Remove a stopped node from the cluster, with the homes and queues of the node.

    The numbers of its homes are not used again.
    """

    node: str


@dataclass(frozen=True, slots=True)
class HomeDown(Change):
    """A home has been down for long: queues bound to the lifetime of the home's process are deleted.

    Attributes:
        queues: their ids, as far as they are known; what the home has made since it is up again stays.
    """

    home: int
    queues: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaveHome(Change):
    """Vacate a home, or cancel the vacating: no queue is placed in the home, and existing queues move away."""

    home: int
    leaves: bool = True


@dataclass(frozen=True, slots=True)
class RemoveHome(Change):
    """Remove an empty home from the broker; queues that do not outlive its process are deleted. The number may be used
    again; queue numbers continue.
    """

    home: int


@dataclass(frozen=True, slots=True)
class AddVirtualHost(Change):
    """Add a virtual host with the predeclared exchanges; of an existing one only the given values change.

    Attributes:
        default_queue_type: of durable queues whose declaration names none; None leaves it as it is.
        description, tags: words for operators; None leaves them as they are.
        home: the number of the home that its clients are to be served by, 0 for any; None leaves it as it is.
    """

    name: str
    default_queue_type: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    home: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteVirtualHost(Change):
    """Delete a virtual host with all contents and permissions."""

    name: str


@dataclass(frozen=True, slots=True)
class SetTracing(Change):
    """Start or stop copying a virtual host's messages, published and delivered, to ``amq.rabbitmq.trace``."""

    vhost: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class PutUser(Change):
    """Add a user, or replace password and tags of an existing one.

    Attributes:
        password_hash: opaque here; the broker makes and verifies it.
    """

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteUser(Change):
    """Delete a user with all permissions."""

    name: str


@dataclass(frozen=True, slots=True)
class SetPermissions(Change):
    """Set a user's permissions in a virtual host: regular expressions searched in the names of resources."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ClearPermissions(Change):
    """Take a user's permissions in a virtual host away."""

    user: str
    vhost: str


@dataclass(frozen=True, slots=True)
class SetTopicPermissions(Change):
    """Set a user's routing keys for publishing to a topic exchange, and for binding to it.

    Attributes:
        exchange: need not exist yet.
        write, read: regular expressions, see :class:`jumpmq.topology.users.TopicPermissions`.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ClearTopicPermissions(Change):
    """Take a user's topic permissions in a virtual host away, for one exchange or, without a name, for all."""

    user: str
    vhost: str
    exchange: str | None = None


@dataclass(frozen=True, slots=True)
class SetUserLimit(Change):
    """Set one of a user's limits, :data:`jumpmq.topology.limits.USER_LIMITS`; negative is unlimited."""

    user: str
    limit: str
    value: int


@dataclass(frozen=True, slots=True)
class ClearUserLimit(Change):
    """Clear a limit of a user."""

    user: str
    limit: str


@dataclass(frozen=True, slots=True)
class SetVirtualHostLimit(Change):
    """Set one of a virtual host's limits, :data:`jumpmq.topology.limits.VIRTUAL_HOST_LIMITS`; negative is unlimited."""

    vhost: str
    limit: str
    value: int


@dataclass(frozen=True, slots=True)
class ClearVirtualHostLimit(Change):
    """Clear a limit of a virtual host."""

    vhost: str
    limit: str


@dataclass(frozen=True, slots=True)
class SetGlobalParameter(Change):
    """Set a global parameter of the broker, such as ``cluster_name``.

    Attributes:
        value: any JSON.
    """

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class ClearGlobalParameter(Change):
    """Take a global parameter away."""

    name: str


@dataclass(frozen=True, slots=True)
class DeclareExchange(Change):
    """Declare an exchange; an existing one must be equivalent."""

    definition: ExchangeDefinition


@dataclass(frozen=True, slots=True)
class DeleteExchange(Change):
    """Delete an exchange and its bindings; no change if the exchange does not exist.

    Attributes:
        if_unused: refuse while it has bindings.
    """

    vhost: str
    name: str
    if_unused: bool = False


@dataclass(frozen=True, slots=True)
class DeclareQueue(Change):
    """Declare a queue; an existing queue must be equivalent, and keeps its number and home.

    Attributes:
        definition: :meth:`Topology.define_queue` makes one; it gets its number when it takes effect.
        server_named: whether the broker has made up the name, which may then start with ``amq.``.
    """

    definition: QueueDefinition
    server_named: bool = False


@dataclass(frozen=True, slots=True)
class DeleteQueue(Change):
    """Delete a queue with messages and bindings. No change unless name and number match.

    :func:`jumpmq.topology.rules.queue_deletion` makes one of what a client asks for.
    """

    vhost: str
    name: str
    id: int


@dataclass(frozen=True, slots=True)
class MoveQueue(Change):
    """Move a queue to a new home, with a new number; its messages follow. No change unless name and number match.

    What is published from now on goes there, and is behind those that follow.
    """

    vhost: str
    name: str
    id: int
    home: int


@dataclass(frozen=True, slots=True)
class EndMove(Change):
    """All messages of the queue of a given name and number have arrived from its previous home."""

    vhost: str
    name: str
    id: int


@dataclass(frozen=True, slots=True)
class Bind(Change):
    """Add a binding; no change if the binding exists.

    Attributes:
        user: whose it then is; "" where it belongs to none.
    """

    vhost: str
    binding: Binding
    connection: str | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class Unbind(Change):
    """Remove a binding; no change if it does not exist."""

    vhost: str
    binding: Binding
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class SetPolicy(Change):
    """Add or replace a policy; it takes effect at once.

    Attributes:
        pattern: regular expression, searched in the names of queues and exchanges.
        definition: a JSON object; :mod:`jumpmq.topology.policy_definitions` has its keys.
        priority: of all policies that match an object the highest is in force.
        apply_to: a key of :data:`jumpmq.topology.policies.APPLY_TO`.
    """

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"


@dataclass(frozen=True, slots=True)
class SetOperatorPolicy(Change):
    """As :class:`SetPolicy`, for operator policies: they take limits only, and are merged with policies."""

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"


@dataclass(frozen=True, slots=True)
class ClearPolicy(Change):
    """Take a policy away."""

    vhost: str
    name: str


@dataclass(frozen=True, slots=True)
class ClearOperatorPolicy(Change):
    """Take an operator policy away."""

    vhost: str
    name: str
