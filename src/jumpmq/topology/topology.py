"""All definitions of a broker, and the only way to change them.

A change is a value (:mod:`jumpmq.topology.changes`), which is *proposed*. In its turn it is *checked*, and *takes
effect* in memory and in the journal as far as it is durable, together with what follows from it (shards): as a
whole, in one commit. A change that is refused changes nothing.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from jumpmq.amqp.errors import AMQPError, NotAllowed, NotFound, PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.queues import QUEUE_TYPES, Queue, make_queue
from jumpmq.queues.base import NO_DEAD_LETTERING, DeadLettering, Journal, QueueContext, Wake, never_wake
from jumpmq.queues.epochs import OwnerEpochs
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.records import OWNER_EPOCH
from jumpmq.store.definitions import BEHIND
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import changes, records
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.base import take_effect
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import HOME_BITS, QueueDefinition, home_of
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.fences import Fences
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.log import ANYWHERE, CommonLog, LocalLog
from jumpmq.topology.policies import Policy
from jumpmq.topology.proposals import THE_BROKER, Asker, Later, Pending, Proposals
from jumpmq.topology.sharding import Sharding
from jumpmq.topology.tally import DeletedCounts
from jumpmq.topology.users import Permissions, TopicPermissions, User
from jumpmq.topology.vhost import VirtualHost

log = logging.getLogger(__name__)

CLUSTER_NAME = "cluster_name"
"""Global parameter with the cluster's name."""

LOCATORS = "queue-leader-locator", "queue-master-locator"
"""Policy keys, and with ``x-`` arguments, for the placement of a queue, as in RabbitMQ."""

CLIENT_LOCAL = "client-local"
"""Locator for placing a queue at the client's home; all further locators choose the home with the fewest queues."""

Listener = Callable[[changes.Change, Asker], None]
"""Called with every applied change and its author; may propose further changes."""


def _at_once(subject: str, steps: Iterator[None]) -> None:
    """Take all steps now."""
    for _ in steps:
        pass


class Topology:
    """Virtual hosts with their contents, and users.

    Args:
        node: name of this broker's node.
        home: number of the home that this process serves.
        journal: where durable definitions, and the queues' messages, are kept; None keeps nothing.
        streams: where streams keep their messages; None keeps them till the end.
        memory: what queues charge for the messages that they hold.
        shared: whether the changes come from a log that is other processes' too, see :class:`Records`.
        later: takes the steps of long work when there is time; all at once unless given.
        dead_letters: takes messages that expired, overflowed or were rejected, see :class:`Queue`.
        wake: asked by queues that want to be looked after, see :class:`Queue`.

    Attributes:
        vhosts, users, global_parameters: by name.
        homes: the node of each home, by number, in the order of joining.
        forgotten: the same of homes that are gone, whose numbers are not used again.
        left: the numbers of homes whose queues move to others.
        sharding: knows the shards of exchanges.
        records: where durable definitions are kept.
        holdings: how much each user has made.
        fences: the changes of rings that queues wait for.
        epochs: numbers the owners of queues.
        delivery_gate: up to when queues deliver.
        past: what was counted of virtual hosts that are gone.
        applied: how many changes were decided, accepted or refused; a restart does not forget where the log is shared.
        deciding: the number of the last change whose decision has begun, the same in all processes.
        counters: the next number of a queue, by home.
        revision: grows with each change: what was concluded from definitions holds as long as it is the same.
        listeners: called with each change that took effect, first the one that was proposed.
        log: the order of changes: this process's own, or a log that other processes share.
        locator: where queues are that do not say it themselves, see :data:`LOCATORS`.
        leaving: called with a virtual host that is being deleted: it is found no more, and all in it is still there.
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
        home: int = 1,
        shared: bool = False,
    ) -> None:
        self.node = node
        self.home = home
        self._journal = journal  # where queues keep messages
        self.epochs = OwnerEpochs() if journal is None else OwnerEpochs(partial(journal.put, OWNER_EPOCH, "home"))
        self._context = QueueContext(  # what all queues are given
            journal=journal,
            streams=StreamFiles(None) if streams is None else streams,
            memory=MemoryAccount() if memory is None else memory,
            dead_letters=dead_letters,
            wake=wake,
            epochs=self.epochs,
        )
        self.delivery_gate = self._context.gate
        self.later = later
        self.vhosts: dict[str, VirtualHost] = {}
        self.users: dict[str, User] = {}
        self.global_parameters: dict[str, Any] = {}
        self.records = records.Records(journal, shared)
        self.applied = self.deciding = 0
        self.holdings = Holdings()
        self.fences = Fences(self, journal)
        self.past = DeletedCounts()
        self.homes: dict[int, str] = {}
        self.forgotten: dict[int, str] = {}
        self.left: set[int] = set()
        self.sharding = Sharding(self)
        self.revision = 0
        self.listeners: list[Listener] = []
        self.leaving: list[Callable[[VirtualHost], None]] = []
        self.counters: dict[int, int] = {}
        self.locator = CLIENT_LOCAL
        self._proposals = Proposals(self._take, later)  # the changes that wait
        self.log: CommonLog = LocalLog(self.decide)

    @property
    def cluster_name(self) -> str:
        """Name of the cluster, by default the node's."""
        return str(self.global_parameters.get(CLUSTER_NAME, self.node))

    @property
    def nodes(self) -> dict[str, list[int]]:
        """Numbers of homes by node, in order of joining; this node alone if none has joined."""
        found: dict[str, list[int]] = {}
        for home, node in (self.homes or {self.home: self.node}).items():
            found.setdefault(node, []).append(home)
        return found

    @property
    def next_home(self) -> int:
        """A number never used by a home."""
        return max([0, *self.homes, *self.forgotten]) + 1

    def node_of(self, home: int) -> str:
        """Return the present or last node of a home."""
        return self.homes.get(home) or self.forgotten.get(home, self.node)

    def vhost(self, name: str) -> VirtualHost:
        """Return a virtual host by name.

        Raises:
            NotAllowed: there is none.
        """
        try:
            return self.vhosts[name]
        except KeyError:
            raise NotAllowed(f"vhost {name} not found") from None

    def user(self, name: str) -> User:
        """Return a user by name.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.users[name]
        except KeyError:
            raise NotFound(f"no user '{name}'") from None

    # --- changing ---

    def propose(self, change: changes.Change, asker: Asker = THE_BROKER, *, limited: bool = False) -> Pending:
        """Propose a change, decided in its turn, mostly at once in a single process.

        Args:
            limited: whether the asker waits for a limited time while the common log stands still. The change is refused
                with :class:`~jumpmq.amqp.errors.MetadataTimeout` then, and not asked for if that is known already.
        """
        pending = Pending(change, asker)
        pending.limited = limited
        self.log.propose(pending)
        return pending

    def decide(self, pending: Pending) -> None:
        """Decide a change, in the log's order, after the earlier ones."""
        self._proposals.add(pending)

    def apply(self, change: changes.Change, asker: Asker = THE_BROKER) -> list[changes.Change]:
        """As :meth:`propose`, and let nothing else happen until it is decided here: as a replay and a start do.

        Returns:
            The change as it took effect, and those that followed.

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        pending = Pending(change, asker)
        self._proposals.add(pending)
        self._proposals.finish()
        pending.result()
        return pending.effects

    def check(self, change: changes.Change) -> None:
        """Refuse a change that conflicts with the current definitions.

        Raises:
            AMQPError: with the reason.
        """
        change.check(self)

    def _take(self, pending: Pending) -> Iterator[None]:
        """Validate a change, apply the change, and notify listeners."""
        if self.log.is_shared:
            self.refuse_own_end(pending.change)
        pending.change = self.log.placed(pending.change)
        pending.number = self.deciding = pending.number or self.applied + 1
        try:
            self.check(pending.change)
            effects = yield from take_effect(self, pending.change)
        finally:
            self.applied = pending.number
            self.records.put_applied(self.applied)
        self.log.note(pending)
        self.revision += 1
        for number, effect in enumerate(effects):
            if number:
                yield
            for listener in self.listeners:
                listener(effect, pending.asker)
        pending.accept(effects)

    def refuse_own_end(self, change: changes.Change) -> None:
        """Reject the removal of this node. Remote nodes accept the removal; the local node then diverges and stops.

        Raises:
            PreconditionFailed: the change does that.
        """
        if isinstance(change, changes.ForgetNode) and self.homes.get(self.home) == change.node:
            raise PreconditionFailed(f"node '{change.node}' cannot forget itself; where others have, it keeps its data")

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
        home: int | None = None,
    ) -> QueueDefinition:
        """Return the definition of a queue to declare.

        One that is durable, and neither exclusive nor deleted automatically, has its virtual host's default queue type.

        Args:
            home: where its messages will be; unless given, here or where the fewest queues are, as its locator says.
                One that is exclusive is here.
        """
        default = self.vhosts[vhost].default_queue_type if vhost in self.vhosts else None
        if default and durable and not exclusive and not auto_delete and arguments.get("x-queue-type") is None:
            arguments = Arguments.shared([*arguments, Field("x-queue-type", "S", default)])
        if home is None:
            is_free = self.log.is_shared and not exclusive
            is_away = self.home in self.left or self._is_balanced(vhost, name, arguments)
            home = ANYWHERE if is_free and is_away else self.home
        return QueueDefinition(vhost, name, durable, exclusive, auto_delete, arguments, owner, user=user, home=home)

    def _is_balanced(self, vhost: str, name: str, arguments: Arguments) -> bool:
        """Return True if a queue goes to the home with the fewest queues: by arguments, policy, or the settings."""
        policy = self.vhosts[vhost].policies.in_force("queue", name).definition if vhost in self.vhosts else {}
        said = [arguments.text(f"x-{key}") for key in LOCATORS] + [policy.get(key) for key in LOCATORS]
        return next(filter(None, said), self.locator) != CLIENT_LOCAL

    def number(self, definition: QueueDefinition) -> QueueDefinition:
        """Return a definition with the next number of its home. Assigned when the declaration takes effect, so that all
        processes agree. A queue numbered already, on its node's disk, keeps the number."""
        counter = self.counters.get(definition.home, 1)
        if definition.id:
            self.counters[definition.home] = max(counter, (definition.id & records.COUNTER) + 1)
            return replace(definition, node=self.node_of(definition.home))
        self.counters[definition.home] = counter + 1
        return definition.numbered(definition.home << HOME_BITS | counter, self.node_of(definition.home))

    def at_home(self, definition: QueueDefinition, home: int) -> QueueDefinition:
        """Return the definition of a queue moving to a new home, with the home's next number."""
        counter = self.counters.get(home, 1)
        self.counters[home] = counter + 1
        original = definition.identity if QUEUE_TYPES[definition.type].append_only else 0
        return replace(definition, id=home << HOME_BITS | counter, home=home, before=definition.id, original=original)

    def is_to_come(self, id: int) -> bool:
        """Return True if this home will assign the id in a change that has not taken effect here."""
        return home_of(id) == self.home and id & records.COUNTER >= self.counters.get(self.home, 1)

    def make_queue(self, definition: QueueDefinition) -> DeclaredQueue:
        """Make an admitted or recorded queue, not yet in a virtual host."""
        contents = self._make_contents(definition) if definition.home == self.home else None
        if contents is not None and definition.before:
            contents.put_behind(self.make_behind(definition, definition.id))
        return DeclaredQueue(definition, contents)

    def make_behind(self, definition: QueueDefinition, id: int) -> Queue:
        """Make the buffer for messages published to a queue while its older ones arrive from the previous home.

        Args:
            id: that of the queue here, which may be on its way to yet another home.
        """
        kept: tuple[str, ...] = ("x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl")
        if QUEUE_TYPES[definition.type].append_only:  # its messages wait in a classic queue
            kept = ()
        arguments = Arguments([field for field in definition.arguments.fields if field.name in kept])
        return self._make_contents(replace(definition, id=id | BEHIND, home=self.home, arguments=arguments))

    def _make_contents(self, definition: QueueDefinition) -> Queue:
        return make_queue(
            definition.vhost,
            definition.name,
            id=definition.id,
            durable=definition.durable,
            exclusive=definition.exclusive,
            auto_delete=definition.auto_delete,
            arguments=definition.arguments.plain(),
            node=self.node_of(definition.home),
            owner=definition.owner,
            context=self._context,
        )

    def drop_contents(self, queues: Iterable[DeclaredQueue]) -> None:
        """Drop the messages of removed queues from the journal, in the same commit."""
        for declared in queues:
            if self._journal is not None and declared.contents is not None and declared.definition.is_kept:
                self._journal.drop_queue(declared.id)

    def insert_queue(self, definition: QueueDefinition) -> None:
        """Add an admitted or recorded queue."""
        self.vhosts[definition.vhost].insert_queue(self.make_queue(definition))

    def flush_rings(self) -> None:
        """Pass the changed hash rings to the journal; called before every commit of the journal.

        A burst of bindings so writes its ring once.
        """
        self.records.flush_rings()

    # --- restart ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """Restore the journal's records into an empty topology. Kinds that are not definitions are skipped.

        Shards that this node lacks are made when its home joins (:class:`~jumpmq.topology.changes.AddHome`).

        Args:
            definitions: (kind, key, value), in the order in which they were first put.
        """
        found: dict[str, list[Any]] = defaultdict(list)
        for kind, key, value in definitions:
            found[kind].append((key, value) if kind == "counter" else value)
        for value in found["home"]:
            (self.forgotten if value.get("forgotten") else self.homes)[value["home"]] = value["node"]
            if value.get("leaves"):
                self.left.add(value["home"])
        self._restore_counters(found)
        self.applied = found["applied"][0] if found["applied"] else 0
        for value in found["vhost"]:
            host = VirtualHost(value["name"], self.records, self.holdings, self.fences)
            host.default_queue_type = value.get("default_queue_type")
            host.description, host.tags = value.get("description", host.description), tuple(value.get("tags", ()))
            host.home = value.get("home", 0)
            self.vhosts[host.name] = host
        self.global_parameters = {value["name"]: value["value"] for value in found["global_parameter"]}
        self._restore_users(found)
        self._restore_policies(found)
        self.fences.is_restoring = True
        for kind, restore in (
            ("tracing", self._restore_tracing),
            ("exchange", lambda value: self.vhosts[value["vhost"]].insert_exchange(records.read_exchange(value))),
            ("queue", lambda value: self._restore_queue(records.read_queue(value))),
            ("binding", lambda value: self._restore_binding(*records.read_binding(value))),
            ("ring", self._restore_ring),
        ):
            _restore_each(found, kind, restore)
        self.fences.is_restoring = False

    def _restore_queue(self, definition: QueueDefinition) -> None:
        self.insert_queue(definition)
        if definition.before and home_of(definition.before) == self.home:
            departed = self._make_contents(replace(definition, id=definition.before, home=self.home))
            departed.moved = True
            self.vhosts[definition.vhost].departed[definition.name] = departed

    def _restore_counters(self, found: Mapping[str, list[Any]]) -> None:
        self.counters = {records.home_of_counter(key): value for key, value in found["counter"]}
        for value in found["queue"]:  # the counter's record can be lost to a damage
            home, counter = value.get("home", 1), value["id"] & records.COUNTER
            self.counters[home] = max(self.counters.get(home, 1), counter + 1)

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

    def _restore_tracing(self, value: dict[str, Any]) -> None:
        self.vhosts[value["name"]].tracing = True

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
            _at_once("", host.in_force.follow())  # the predeclared exchanges

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
    """Restore the definitions of a kind, except those with missing parts: damage can lose a definition."""
    for value in found.get(kind, ()):
        try:
            restore(value)
        except (LookupError, AMQPError) as error:
            log.warning("the definition of %s %s is left out: %r is missing", kind, value, str(error))
