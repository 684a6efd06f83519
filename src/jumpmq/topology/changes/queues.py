"""Changes of queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import AccessRefused, PreconditionFailed
from jumpmq.topology import equivalence, rules
from jumpmq.topology.changes.base import Change, ChangeInSteps, Steps
from jumpmq.topology.definitions import QueueDefinition, home_of
from jumpmq.topology.queue_arguments import check_arguments, check_properties
from jumpmq.topology.rights import Right, TopicRight

if TYPE_CHECKING:
    from jumpmq.topology.declared import DeclaredQueue
    from jumpmq.topology.state import State
    from jumpmq.topology.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class DeclareQueue(Change):
    """Declare a queue; an existing queue must be equivalent, and keeps its number and home.

    Attributes:
        definition: made by :meth:`Topology.define_queue`; its id is assigned when the change takes effect.
        server_named: True for a name made by the broker, which may begin with ``amq.``.
    """

    definition: QueueDefinition
    server_named: bool = False

    def refuse_for_all(self) -> None:
        if not self.server_named:
            rules.refuse_reserved("queue", self.definition.name)

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        """Yield also the rights for dead-lettering: to read from the queue, and to write to its dead letter
        exchange.
        """
        vhost, name, arguments = self.definition.vhost, self.definition.name, self.definition.arguments
        yield Right("configure", vhost, "queue", name)
        host, target = state.vhost(vhost), arguments.get("x-dead-letter-exchange")
        if target is None or not isinstance(target.value, str) or name in host.declared:
            return
        yield Right("read", vhost, "queue", name)
        yield Right("write", vhost, "exchange", target.value)
        key, exchange = arguments.text("x-dead-letter-routing-key"), host.exchanges.get(target.value)
        if key is not None and exchange is not None:
            yield TopicRight("write", exchange, key.encode(errors="surrogateescape"))

    def check(self, state: State) -> None:
        definition = self.definition
        vhost = state.vhost(definition.vhost)
        self.refuse_for_all()
        current = vhost.declared.get(definition.name)
        if current is not None:
            if current.exclusive != definition.exclusive or current.owner != definition.owner:
                raise vhost.locked(definition.name)
            equivalence.check_queue(current.definition, definition)
            return
        rules.refuse_forgotten(state.forgotten, definition.home)
        if definition.id:
            _require_number(state, definition)
        rules.refuse_beyond_queue_limit(vhost, definition.name)
        state.holdings.require(state.users, definition.user, "queue", f"declare queue '{definition.name}'")
        check_arguments(definition)
        check_properties(definition)

    def effect(self, state: State) -> Change | None:
        vhost = state.vhost(self.definition.vhost)
        if self.definition.name in vhost.declared:
            return None
        definition = state.number(self.definition)
        state.insert_queue(definition)
        state.records.put_numbered_queue(definition)
        if self.definition.id:
            state.records.put_counter(definition.home, state.counters[definition.home])
        return DeclareQueue(definition, self.server_named)

    def inverse(self, state: State) -> list[Change]:
        return []

    def inverse_of_effect(self, *, followed: bool) -> list[Change]:
        definition = self.definition
        return [DeleteQueue(definition.vhost, definition.name, definition.id)] if definition.id else []

    def changes_nothing(self, state: State) -> bool:
        current = state.vhost(self.definition.vhost).declared.get(self.definition.name)
        if current is None:
            return False
        equivalence.check_queue(current.definition, self.definition)
        return True


def _require_number(state: State, definition: QueueDefinition) -> None:
    """
    Raises: PreconditionFailed: the number of a queue is not available.
    """
    queues = (queue.definition for host in state.vhosts.values() for queue in host.declared.values())
    if home_of(definition.id) != definition.home or any(definition.id in (one.id, one.before) for one in queues):
        raise PreconditionFailed(f"queue '{definition.name}' cannot have the number {definition.id}")


@dataclass(frozen=True, slots=True)
class DeleteQueue(ChangeInSteps):
    """Delete a queue with its messages and bindings. No change unless name and id match.

    :func:`queue_deletion` makes the change for a client's request.
    """

    vhost: str
    name: str
    id: int

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        yield Right("configure", self.vhost, "queue", self.name)

    def check(self, state: State) -> None:
        state.vhost(self.vhost)

    def steps(self, state: State) -> Steps:
        vhost = state.vhost(self.vhost)
        declared = vhost.declared.get(self.name)
        if declared is None or self.id not in (declared.id, declared.definition.before):
            return []
        yield from vhost.removing_bindings_to(declared.destination)
        vhost.take_queue(declared)
        state.records.hand_over()
        if declared.contents is not None:
            declared.contents.delete()
        if declared.id == self.id:
            return []
        return [DeleteQueue(self.vhost, self.name, declared.id)]  # the author did not know of the move


def queue_deletion(
    vhost: VirtualHost, name: str, *, if_unused: bool = False, if_empty: bool = False, connection: str | None = None
) -> DeleteQueue | None:
    """Return the change that deletes a queue for a request; None if the queue does not exist.

    Called at the queue's home, because it depends on messages and consumers.

    Args:
        if_unused: True to refuse if the queue has consumers.
        if_empty: True to refuse if the queue has ready messages.
        connection: identity of the requesting connection.

    Raises:
        PreconditionFailed: the queue is in use, or not empty.
        ResourceLocked: another connection owns the queue.
    """
    if name not in vhost.queues:
        return None
    queue = vhost.queue(name, connection)
    if queue.is_internal:
        exchange = queue.limits.dead_letter_exchange
        raise AccessRefused(f"queue '{name}' in vhost '{vhost.name}' goes with exchange '{exchange}'")
    if if_unused and queue.consumers:
        raise PreconditionFailed(f"queue '{name}' in vhost '{vhost.name}' in use")
    if if_empty and queue.ready_count and not queue.append_only:
        raise PreconditionFailed(f"queue '{name}' in vhost '{vhost.name}' not empty")
    return DeleteQueue(vhost.name, name, queue.id)


@dataclass(frozen=True, slots=True)
class MoveQueue(Change):
    """Move a queue to a new home, with a new id; its messages follow. No change unless name and id match.

    Messages published from now on go to the new home, and come after those that follow.
    """

    vhost: str
    name: str
    id: int
    home: int

    def check(self, state: State) -> None:
        declared = state.vhost(self.vhost).declared.get(self.name)
        if declared is not None and declared.id == self.id:
            refuse_move(state, declared.definition, self.home)

    def effect(self, state: State) -> None:
        vhost = state.vhost(self.vhost)
        old = vhost.declared.get(self.name)
        if old is None or old.id != self.id or old.definition.home == self.home:
            return
        moved = state.make_queue(state.at_home(old.definition, self.home))
        vhost.replace_queue(old, moved)
        state.records.put_numbered_queue(moved.definition)


def refuse_move(state: State, definition: QueueDefinition, home: int) -> None:
    """Refuse the move of an immovable queue.

    Raises:
        PreconditionFailed: with the reason.
    """
    subject = f"queue '{definition.name}' in vhost '{definition.vhost}'"
    if home not in state.homes:
        raise PreconditionFailed(f"{subject} cannot be moved: there is no home {home}")
    if home in state.left and home != definition.home:
        raise PreconditionFailed(f"{subject} cannot be moved: home {home} is being left")
    if definition.before:
        raise PreconditionFailed(f"{subject} is on its way already")
    if not definition.is_kept:
        raise PreconditionFailed(f"{subject} cannot be moved: it ends with who uses it, or with its node")


@dataclass(frozen=True, slots=True)
class EndMove(Change):
    """All messages of the queue of a given name and number have arrived from its previous home."""

    vhost: str
    name: str
    id: int

    def check(self, state: State) -> None:
        state.vhost(self.vhost)

    def effect(self, state: State) -> None:
        declared = state.vhost(self.vhost).declared.get(self.name)
        if declared is not None and declared.id == self.id:
            end_move(state, declared)


def end_move(state: State, declared: DeclaredQueue) -> None:
    """Forget a queue's previous home, and delete the rest of the queue there."""
    vhost = state.vhosts[declared.vhost]
    departed = vhost.departed.pop(declared.name, None)
    if departed is not None:
        vhost.past.add_queue(departed)
        departed.delete()
    declared.definition = replace(declared.definition, before=0)
    state.records.put_queue(declared.definition)
