"""All definitions of a broker, and the only way to change them.

A change is a value (:mod:`jumpmq.topology.changes`) that is *proposed*. In its turn it is *checked*, and *takes
effect*: in memory, and, if durable, in the journal, together with its consequences (shards), as a whole, in one commit.
A refused change changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from jumpmq.queues.base import NO_DEAD_LETTERING, DeadLettering, Journal, Wake, never_wake
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import restoring
from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments
from jumpmq.topology.changes.base import Change, take_effect
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.log import ANYWHERE, CommonLog, LocalLog
from jumpmq.topology.proposals import THE_BROKER, ChangePrincipal, Pending, Proposals
from jumpmq.topology.state import Later, State, at_once

LOCATORS = "queue-leader-locator", "queue-master-locator"
"""Policy keys, and with ``x-`` arguments, for the placement of a queue, as in RabbitMQ."""

CLIENT_LOCAL = "client-local"
"""Locator for placing a queue at the client's home; all further locators choose the home with the fewest queues."""

ChangeListener = Callable[[Change, ChangePrincipal], None]
"""Called with every applied change and its author; may propose further changes."""


class Topology(State):
    """Virtual hosts with their contents, and users; changed by proposals.

    Args: as those of :class:`State`, and ``locator``: placement of queues without a locator of their own, see
        :data:`LOCATORS`.

    Attributes:
        listeners: called with each change that took effect, the proposed change first.
        log: the order of changes: of this process alone, or a log shared with other processes.
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
        locator: str = CLIENT_LOCAL,
    ) -> None:
        super().__init__(
            node,
            journal,
            streams=streams,
            memory=memory,
            dead_letters=dead_letters,
            wake=wake,
            later=later,
            home=home,
            shared=shared,
        )
        self.listeners: list[ChangeListener] = []
        self._locator = locator  # placement of queues without a locator of their own
        self._proposals = Proposals(self._take, later)  # undecided changes
        self.log: CommonLog = LocalLog(self.decide)

    def order_by(self, log: CommonLog) -> None:
        """Order changes by a log from now on. The log applies its entries here."""
        self.log = log

    # --- changing ---

    def propose(self, change: Change, principal: ChangePrincipal = THE_BROKER, *, limited: bool = False) -> Pending:
        """Propose a change. It is decided in its turn, in a single process mostly at once.

        Args:
            limited: True if the proposer waits for a limited time while the shared log is stalled. The change is then
                refused with :class:`~jumpmq.amqp.errors.MetadataTimeout`; if the log is known to be stalled, it is not
                proposed.
        """
        pending = Pending(change, principal)
        pending.limited = limited
        self.log.propose(pending)
        return pending

    def decide(self, pending: Pending) -> None:
        """Decide a change, in the log's order, after the earlier ones."""
        self._proposals.add(pending)

    def apply(self, change: Change, principal: ChangePrincipal = THE_BROKER) -> list[Change]:
        """Propose a change and decide it before anything else, as a replay and a start do.

        Returns:
            The change as it took effect, and the changes that followed from it.

        Raises:
            AMQPError: the change is refused, and nothing has changed.
        """
        pending = Pending(change, principal)
        self._proposals.add(pending)
        self._proposals.finish()
        pending.result()
        return pending.effects

    def check(self, change: Change) -> None:
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
            # A refused change has a number, too: a restarted process must not decide it again.
            self.applied = pending.number
            self.records.put_applied(self.applied)
        # Before anything else ends the commit: the entry is in the commit of its effect.
        self.log.note(pending)
        self.revision += 1
        for number, effect in enumerate(effects):
            if number:
                yield
            for listener in self.listeners:
                listener(effect, pending.principal)
        pending.accept(effects)

    def refuse_own_end(self, change: Change) -> None:
        """See :meth:`Change.refuse_own_end`."""
        change.refuse_own_end(self)

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

        Args:
            home: home of the queue's messages. By default chosen by the queue's locator: here, the home with the fewest
                queues, or a home with as many copies as requested. An exclusive queue is here.
        """
        is_free = home is None and self.log.is_shared and not exclusive
        if home is None:
            is_away = self.home in self.left or self.is_balanced(vhost, name, arguments)
            home = ANYWHERE if is_free and is_away else self.home
        definition = super().define_queue(
            vhost, name, durable, exclusive, auto_delete, arguments, owner, user=user, home=home
        )
        if is_free and self.log.has_copies and definition.group_size > 1:
            return replace(definition, home=ANYWHERE)
        return definition

    def is_balanced(self, vhost: str, name: str, arguments: Arguments) -> bool:
        """Return True if a queue goes to the home with the fewest queues: by arguments, policy, or the settings."""
        policy = self.vhosts[vhost].policies.in_force("queue", name).definition if vhost in self.vhosts else {}
        said = [arguments.text(f"x-{key}") for key in LOCATORS] + [policy.get(key) for key in LOCATORS]
        return next(filter(None, said), self._locator) != CLIENT_LOCAL

    # --- restart ---

    def restore(self, definitions: Iterable[tuple[str, str, Any]]) -> None:
        """See :func:`jumpmq.topology.restoring.restore`."""
        restoring.restore(self, definitions)
