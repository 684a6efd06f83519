"""All definitions of a broker, and the one way to change them.

A change is a value (:mod:`jumpmq.topology.changes`). :meth:`Topology.apply` checks it against the rules, applies it to
the state in memory, and has it recorded in the journal as far as it is durable. A change that is refused changes
nothing. What sharding adds to a change are changes too: :meth:`Topology.steps` gives them all, one by one, and
:meth:`Topology.make` applies them at once.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from jumpmq.amqp.errors import AMQPError, NotAllowed, NotFound
from jumpmq.amqp.fields import Field
from jumpmq.queues import Queue, make_queue
from jumpmq.queues.base import NO_DEAD_LETTERING, DeadLettering, Journal, Wake, never_wake
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import changes, records, rules
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.effects import take_effect
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.policies import Policy
from jumpmq.topology.sharding import Sharding
from jumpmq.topology.tally import Past
from jumpmq.topology.users import Permissions, TopicPermissions, User
from jumpmq.topology.vhost import VirtualHost

log = logging.getLogger(__name__)

Later = Callable[[str, Iterator[None]], None]
"""Takes the steps of long work, whose subject is given, when there is time."""

_WITH_MORE = (changes.SetPolicy, changes.ClearPolicy, changes.DeclareExchange, changes.DeleteVirtualHost)
"""The changes that others follow from."""

CLUSTER_NAME = "cluster_name"
"""The global parameter that names the cluster."""

STEPS_AT_ONCE = 400
"""Steps of a change that a client waits for: 200 shards. What is beyond is made while others are served."""


def _at_once(subject: str, steps: Iterator[None]) -> None:
    """Take all steps now."""
    for _ in steps:
        pass


class Topology:
    """Virtual hosts with what is in them, and users.

    Args:
        node: name of this broker's node, home of the queues defined here.
        journal: where durable definitions, and the queues' messages, are kept; None keeps nothing.
        streams: where streams keep their messages; None keeps them till the end.
        memory: what queues charge for the messages that they hold.
        later: takes the steps of long work when there is time; all at once unless given.
        dead_letters: takes messages that expired, overflowed or were rejected, see :class:`Queue`.
        wake: asked by queues that want to be looked after, see :class:`Queue`.

    Attributes:
        vhosts, users, global_parameters: by name.
        sharding: knows the shards of exchanges.
        records: where durable definitions are kept.
        holdings: how much each user has made.
        past: what was counted of virtual hosts that are gone.
        next_queue_id: the number of the next queue; those below were given, or are not to be.
        revision: how many changes were applied: what was concluded from definitions holds as long as it is the same.
        listeners: called with each change that was applied.
    """

    def __init__(
        self,
        node: str,
        journal: Journal | None = None,
        *,
        streams: StreamFiles | None = None,
        memory: MemoryAccount | None = None,
        dead_letters: DeadLettering = NO_DEAD_LETTERING,
        wake: Wake = never_wake,
        later: Later = _at_once,
    ) -> None:
        self.node = node
        self._memory = memory
        self._dead_letters = dead_letters
        self._journal = journal
        self._streams = StreamFiles(None) if streams is None else streams
        self._wake = wake
        self.later = later
        self.vhosts: dict[str, VirtualHost] = {}
        self.users: dict[str, User] = {}
        self.global_parameters: dict[str, Any] = {}
        self.records = records.Records(journal)
        self.holdings = Holdings()
        self.past = Past()
        self.next_queue_id = 1
        self.sharding = Sharding(node, self.define_queue)
        self.revision = 0
        self.listeners: list[Callable[[changes.Change], None]] = []

    @property
    def cluster_name(self) -> str:
        """The name of the cluster: the node's, unless another was set."""
        return str(self.global_parameters.get(CLUSTER_NAME, self.node))

    def vhost(self, name: str) -> VirtualHost:
        """The virtual host of this name.

        Raises:
            NotAllowed: there is none.
        """
        try:
            return self.vhosts[name]
        except KeyError:
            raise NotAllowed(f"vhost {name} not found") from None

    def user(self, name: str) -> User:
        """The user of this name.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.users[name]
        except KeyError:
            raise NotFound(f"no user '{name}'") from None

    # --- changing ---

    def define_queue(
        self,
        vhost: str,
        name: str,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = NO_ARGUMENTS,
        owner: str | None = None,
        user: str = "",
    ) -> QueueDefinition:
        """A queue's definition with a number of its own, and this node as its home.

        One that is durable, and neither exclusive nor deleted automatically, has its virtual host's default queue type.
        """
        default = self.vhosts[vhost].default_queue_type if vhost in self.vhosts else None
        if default and durable and not exclusive and not auto_delete and arguments.get("x-queue-type") is None:
            arguments = Arguments([*arguments, Field("x-queue-type", "S", default)])
        number = self.next_queue_id
        self.next_queue_id += 1
        return QueueDefinition(vhost, name, durable, exclusive, auto_delete, arguments, owner, self.node, number, user)

    def check(self, change: changes.Change) -> None:
        """Refuse a change that may not be made, by the definitions that there are.

        Raises:
            AMQPError: with the reason.
        """
        rules.check(self, change)

    def apply(self, change: changes.Change) -> None:
        """Make one change, and nothing that should follow from it (see :meth:`steps`).

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        rules.check(self, change)
        take_effect(self, change)
        self.revision += 1
        for listener in self.listeners:
            listener(change)

    def steps(self, change: changes.Change) -> Iterator[changes.Change]:
        """A change, and the changes that follow from it: shards to be made, bound and unbound. A virtual host's queues
        are deleted one by one before it is.

        Each is to be applied before the next is asked for. Between two the state may change otherwise, so that somebody
        who has many steps to make may let others go first.

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        if isinstance(change, _WITH_MORE):
            rules.check(self, change)
        if isinstance(change, changes.DeleteVirtualHost):
            for queue in list(self.vhost(change.name).queues.values()):
                yield changes.DeleteQueue(change.name, queue.name, queue.id)
        yield from self.sharding.steps(self, change)

    def make(self, change: changes.Change) -> None:
        """Make a change with what follows from it: if that is much, the rest of it later.

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        if not isinstance(change, _WITH_MORE):
            self.apply(change)
            return
        steps = self.make_in_steps(change)
        for count, _ in enumerate(steps, 1):
            if count == STEPS_AT_ONCE:
                self.later(f"making the shards of {type(change).__name__}", steps)
                return

    def make_in_steps(self, change: changes.Change) -> Iterator[None]:
        """As :meth:`make`, a step each time that the next is asked for."""
        for step in self.steps(change):
            self.apply(step)
            yield

    def insert_queue(self, definition: QueueDefinition) -> Queue:
        """Add a queue that the rules admit, or that the records keep."""
        queue = make_queue(
            definition.vhost,
            definition.name,
            id=definition.id,
            durable=definition.durable,
            exclusive=definition.exclusive,
            auto_delete=definition.auto_delete,
            arguments=definition.arguments.plain(),
            node=definition.node,
            journal=self._journal,
            owner=definition.owner,
            streams=self._streams,
            memory=self._memory,
            dead_letters=self._dead_letters,
            wake=self._wake,
        )
        self.next_queue_id = max(self.next_queue_id, definition.id + 1)
        self.vhosts[definition.vhost].insert_queue(queue, definition)
        return queue

    def flush_rings(self) -> None:
        """Hand the hash rings that changed to the journal; to be called before each of its commits.

        A burst of bindings so writes its ring once.
        """
        self.records.flush_rings()

    # --- restart ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Rebuild what the journal kept, into an empty topology. Records of kinds that are not definitions are skipped.

        Shards that this node lacks are the changes that :meth:`Sharding.missing` then gives.

        Args:
            definitions: (kind, key, value), in the order in which they were first put.
        """
        found: dict[str, list[Any]] = defaultdict(list)
        for kind, key, value in definitions:
            found[kind].append((key, value) if kind == "counter" else value)
        for value in found["vhost"]:
            host = VirtualHost(value["name"], self.records, self.holdings)
            host.default_queue_type = value.get("default_queue_type")
            host.description, host.tags = value.get("description", host.description), tuple(value.get("tags", ()))
            self.vhosts[host.name] = host
        self.global_parameters = {value["name"]: value["value"] for value in found["global_parameter"]}
        self._restore_users(found)
        self._restore_policies(found)
        for kind, restore in (
            ("exchange", lambda value: self.vhosts[value["vhost"]].insert_exchange(records.read_exchange(value))),
            ("queue", lambda value: self.insert_queue(records.read_queue(value))),
            ("binding", lambda value: self._restore_binding(*records.read_binding(value))),
            ("ring", self._restore_ring),
        ):
            _restore_each(found, kind, restore)
        counters = dict(found["counter"])
        self.next_queue_id = max(self.next_queue_id, counters.get(records.NEXT_QUEUE_ID, 1))

    def _restore_users(self, found: Mapping[str, list[Any]]) -> None:
        for value in found["user"]:
            self.users[value["name"]] = User(value["name"], value["password_hash"], tuple(value["tags"]))
        for kind, restore in (
            ("permissions", self._restore_permissions),
            ("topic_permissions", self._restore_topic_permissions),
            ("user_limits", lambda value: self.users[value["name"]].limits.update(value["limits"])),
            ("vhost_limits", lambda value: self.vhosts[value["name"]].limits.update(value["limits"])),
        ):
            _restore_each(found, kind, restore)

    def _restore_permissions(self, value: dict[str, Any]) -> None:
        granted = Permissions(value["configure"], value["write"], value["read"])
        self.users[value["user"]].permissions[value["vhost"]] = granted

    def _restore_topic_permissions(self, value: dict[str, Any]) -> None:
        granted = TopicPermissions(value["write"], value["read"])
        self.users[value["user"]].topic_permissions[value["vhost"], value["exchange"]] = granted

    def _restore_policies(self, found: Mapping[str, list[Any]]) -> None:
        for kind, operator in (("policy", False), ("operator_policy", True)):
            _restore_each(found, kind, partial(self._restore_policy, operator))
        for host in self.vhosts.values():
            _at_once("", host.follow_policies())  # the predeclared exchanges

    def _restore_policy(self, operator: bool, value: dict[str, Any]) -> None:
        self.vhosts[value["vhost"]].policies.put(Policy(**value), operator)

    def _restore_binding(self, vhost: str, binding: Binding, user: str) -> None:
        self.vhosts[vhost].insert_binding(binding, user)

    def _restore_ring(self, value: dict[str, Any]) -> None:
        exchange, state = self.vhosts[value["vhost"]].exchanges[value["exchange"]], value["state"]
        if isinstance(exchange, ConsistentHashExchange):
            exchange.restore_ring(state)
            if exchange.ring.state() != state:
                self.records.note_ring(exchange)


def _restore_each(found: Mapping[str, list[Any]], kind: str, restore: Callable[[Any], object]) -> None:
    """Restore the definitions of a kind, but for those of what is not there: a definition can be lost to a damage."""
    for value in found.get(kind, ()):
        try:
            restore(value)
        except (LookupError, AMQPError) as error:
            log.warning("the definition of %s %s is left out: %r is missing", kind, value, str(error))
