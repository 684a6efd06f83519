"""The definitions of a broker in memory: virtual hosts with their contents, users, homes, and counters.

Changes (:mod:`jumpmq.topology.changes`) read and change them; :class:`~jumpmq.topology.topology.Topology` decides when.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from jumpmq.amqp.errors import NotAllowed, NotFound
from jumpmq.amqp.fields import Field
from jumpmq.queues import QUEUE_TYPES, Queue, make_queue
from jumpmq.queues.base import NO_DEAD_LETTERING, DeadLettering, Journal, QueueContext, Wake, never_wake
from jumpmq.queues.epochs import OwnerEpochs
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store.definitions import BEHIND
from jumpmq.store.kinds import OWNER_EPOCH
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import HOME_BITS, QueueDefinition, home_of
from jumpmq.topology.fences import Fences
from jumpmq.topology.holdings import Holdings
from jumpmq.topology.records import COUNTER, Records
from jumpmq.topology.sharding import Sharding
from jumpmq.topology.tally import DeletedCounts
from jumpmq.topology.users import User
from jumpmq.topology.vhost import VirtualHost

CLUSTER_NAME = "cluster_name"
"""Global parameter with the cluster's name."""

Later = Callable[[str, Iterator[None]], None]
"""Runs the steps of long work, with the given subject, in time slices."""


def at_once(subject: str, steps: Iterator[None]) -> None:
    """Take all steps now."""
    for _ in steps:
        pass


class State:
    """Definitions, with lookups, and the making of queues.

    Args:
        node: name of this broker's node.
        home: number of the home served by this process.
        journal: stores durable definitions, and the messages of queues; None stores nothing.
        streams: files of streams; None keeps messages in memory.
        memory: account of the memory for messages.
        shared: True if changes come from a log shared with other processes, see :class:`Records`.
        later: runs the steps of long work in time slices; by default all steps at once.
        dead_letters: publishes messages that expired, overflowed or were rejected, see :class:`Queue`.
        wake: schedules maintenance of queues, see :class:`Queue`.

    Attributes:
        vhosts, users, global_parameters: by name.
        homes: the node of each home, by number, in the order of joining.
        forgotten: the same for removed homes, whose numbers are not used again.
        left: numbers of homes whose queues are moving away, before the homes are removed.
        sharding: the shards of exchanges.
        records: the records of durable definitions.
        holdings: number of objects per user.
        fences: ring changes that queues wait for.
        epochs: assigns the owner epochs of queues.
        delivery_gate: restricts the deliveries of queues.
        past: counts of deleted virtual hosts.
        applied: number of decided changes, accepted or refused; with a shared log, kept across restarts.
        deciding: number of the change being decided, or decided last; equal in all processes.
        counters: next number of a queue, by home.
        revision: incremented by each change; conclusions from definitions are valid while it is unchanged.
        leaving: called with a virtual host that is being deleted: it is not found any more, and its contents still
            exist.
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
        later: Later = at_once,
        home: int = 1,
        shared: bool = False,
    ) -> None:
        self.node = node
        self.home = home
        self._journal = journal  # storage of queues' messages
        self.epochs = OwnerEpochs() if journal is None else OwnerEpochs(partial(journal.put, OWNER_EPOCH, "home"))
        self._context = QueueContext(  # shared by all queues
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
        self.records = Records(journal, shared)
        self.applied = self.deciding = 0
        self.holdings = Holdings()
        self.fences = Fences(self, journal)
        self.past = DeletedCounts()
        self.homes: dict[int, str] = {}
        self.forgotten: dict[int, str] = {}
        self.left: set[int] = set()
        self.sharding = Sharding(self)
        self.revision = 0
        self.leaving: list[Callable[[VirtualHost], None]] = []
        self.counters: dict[int, int] = {}

    @property
    def cluster_name(self) -> str:
        """Name of the cluster; by default the node's name."""
        return str(self.global_parameters.get(CLUSTER_NAME, self.node))

    @property
    def nodes(self) -> dict[str, list[int]]:
        """Numbers of homes by node, in the order of joining; only this node if none has joined."""
        found: dict[str, list[int]] = {}
        for home, node in (self.homes or {self.home: self.node}).items():
            found.setdefault(node, []).append(home)
        return found

    @property
    def nodes_by_home(self) -> list[str]:
        """Names of the nodes, by the number of the first home of each node: the same order at all nodes."""
        nodes = self.nodes
        return sorted(nodes, key=lambda node: min(nodes[node]))

    @property
    def next_home(self) -> int:
        """Return a home number that was never used."""
        return max([0, *self.homes, *self.forgotten]) + 1

    def node_of(self, home: int) -> str:
        """Return the present or last node of a home."""
        return self.homes.get(home) or self.forgotten.get(home, self.node)

    def vhost(self, name: str) -> VirtualHost:
        """Return a virtual host by name.

        Raises:
            NotAllowed: there is no such virtual host.
        """
        try:
            return self.vhosts[name]
        except KeyError:
            raise NotAllowed(f"vhost {name} not found") from None

    def user(self, name: str) -> User:
        """Return a user by name.

        Raises:
            NotFound: there is no such user.
        """
        try:
            return self.users[name]
        except KeyError:
            raise NotFound(f"no user '{name}'") from None

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
        *,
        home: int,
    ) -> QueueDefinition:
        """Return the definition of a queue to declare.

        A durable queue that is neither exclusive nor deleted automatically gets its virtual host's default queue type.
        """
        default = self.vhosts[vhost].default_queue_type if vhost in self.vhosts else None
        if default and durable and not exclusive and not auto_delete and arguments.get("x-queue-type") is None:
            arguments = Arguments.shared([*arguments, Field("x-queue-type", "S", default)])
        return QueueDefinition(vhost, name, durable, exclusive, auto_delete, arguments, owner, user=user, home=home)

    def number(self, definition: QueueDefinition) -> QueueDefinition:
        """Return a definition with the next number of its home. The number is assigned when the declaration takes
        effect, so that all processes agree. A queue that already has a number, on its node's disk, keeps it.
        """
        counter = self.counters.get(definition.home, 1)
        if definition.id:
            self.counters[definition.home] = max(counter, (definition.id & COUNTER) + 1)
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
        """Return True if this home will assign the id in a change that has not taken effect here yet."""
        return home_of(id) == self.home and id & COUNTER >= self.counters.get(self.home, 1)

    def make_queue(self, definition: QueueDefinition) -> DeclaredQueue:
        """Make an admitted or recorded queue, not yet in a virtual host."""
        contents = self._make_contents(definition) if definition.home == self.home else None
        if contents is not None and definition.before:
            contents.put_behind(self.make_behind(definition, definition.id))
        return DeclaredQueue(definition, contents)

    def make_behind(self, definition: QueueDefinition, id: int) -> Queue:
        """Make the buffer for messages published to a queue while its older ones arrive from the previous home.

        Args:
            id: id of the local queue, which may be moving to another home.
        """
        kept: tuple[str, ...] = ("x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl")
        if QUEUE_TYPES[definition.type].append_only:  # an append-only queue's messages wait in a classic queue
            kept = ()
        arguments = Arguments([field for field in definition.arguments.fields if field.name in kept])
        return self._make_contents(replace(definition, id=id | BEHIND, home=self.home, arguments=arguments))

    def make_departed(self, definition: QueueDefinition) -> Queue:
        """Make the contents of a queue that moves from this home to another home."""
        departed = self._make_contents(replace(definition, id=definition.before, home=self.home))
        departed.moved = True
        return departed

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
        """Pass changed hash rings to the journal, before every commit. A burst of bindings thus writes its ring
        once.
        """
        self.records.flush_rings()
