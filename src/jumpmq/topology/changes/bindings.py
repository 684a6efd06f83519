"""Changes of bindings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jumpmq.amqp.errors import AccessRefused, PreconditionFailed
from jumpmq.queues import QUEUE_TYPES
from jumpmq.topology import limits, rules
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.base import Change
from jumpmq.topology.definitions import QueueDefinition
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.exchanges.ordered_scaling import ordered_scaling
from jumpmq.topology.rights import Right, TopicRight

if TYPE_CHECKING:
    from jumpmq.topology.state import State


@dataclass(frozen=True, slots=True)
class Bind(Change):
    """Add a binding; no change if the binding exists.

    Attributes:
        user: creator of the binding; "" for none.
    """

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"connection", "user"})

    vhost: str
    binding: Binding
    connection: str | None = None
    user: str = ""

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        return _rights(state, self.vhost, self.binding)

    def check(self, state: State) -> None:
        vhost, binding = state.vhost(self.vhost), self.binding
        rules.refuse_default_exchanges(binding)
        source = vhost.exchange(binding.source)
        destination = vhost.destination(binding)
        if not isinstance(destination, Exchange) and QUEUE_TYPES[destination.type].is_internal:
            raise AccessRefused(
                f"queue '{binding.destination}' in vhost '{vhost.name}' cannot be bound: it is internal"
            )
        source.check(binding, None if isinstance(destination, Exchange) else destination.type)
        if source.ordered and (declared := vhost.queue_definition(binding.destination)) is not None:
            _refuse_priorities(source, binding, declared)
        vhost.destination(binding, self.connection)  # another owner is reported last, as in RabbitMQ
        if binding not in source.bindings:
            act = f"bind {binding.kind} '{binding.destination}'"
            limit = limits.reached(vhost.limits, "max-bindings", vhost.binding_count)
            if limit is not None:
                raise PreconditionFailed(f"cannot {act}: binding limit in vhost '{vhost.name}' ({limit}) is reached")
            state.holdings.require(state.users, self.user, "binding", act)

    def effect(self, state: State) -> None:
        vhost, binding = state.vhost(self.vhost), self.binding
        source = vhost.exchanges[binding.source]
        if binding not in source.bindings:
            vhost.insert_binding(binding, self.user)
            state.records.put_binding(source, binding, source.bindings[binding], self.user)

    def inverse(self, state: State) -> list[Change]:
        source = state.vhost(self.vhost).exchanges.get(self.binding.source)
        if source is None or self.binding in source.bindings:
            return []
        return [Unbind(self.vhost, self.binding)]

    def inverse_of_effect(self, *, followed: bool) -> list[Change]:
        return [Unbind(self.vhost, self.binding)] if followed else []

    def changes_nothing(self, state: State) -> bool:
        source = state.vhost(self.vhost).exchanges.get(self.binding.source)
        return source is not None and self.binding in source.bindings


def _rights(state: State, vhost: str, binding: Binding) -> Iterator[Right | TopicRight]:
    yield Right("write", vhost, binding.kind, binding.destination)
    rules.refuse_default_exchanges(binding)  # in RabbitMQ's order
    yield Right("read", vhost, "exchange", binding.source)
    source = state.vhost(vhost).exchanges.get(binding.source)
    if source is not None:
        yield TopicRight("read", source, binding.key)


def _refuse_priorities(source: Exchange, binding: Binding, definition: QueueDefinition) -> None:
    """Refuse to bind a queue with priorities to an exchange with ``ordered-scaling``: the orders conflict."""
    if ordered_scaling(source.definition) and binding.kind == "queue" and definition.arguments.get("x-max-priority"):
        raise PreconditionFailed(
            f"exchange '{source.name}' in vhost '{source.vhost}' with ordered-scaling cannot be bound to queue "
            f"'{definition.name}' with priorities: they have another order"
        )


@dataclass(frozen=True, slots=True)
class Unbind(Change):
    """Remove a binding; no change for a missing one."""

    vhost: str
    binding: Binding
    connection: str | None = None

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        return _rights(state, self.vhost, self.binding)

    def check(self, state: State) -> None:
        vhost, binding = state.vhost(self.vhost), self.binding
        rules.refuse_default_exchanges(binding)
        source = vhost.exchanges.get(binding.source)
        if source is not None and binding in source.bindings:
            vhost.destination(binding, self.connection)

    def effect(self, state: State) -> None:
        vhost, binding = state.vhost(self.vhost), self.binding
        source = vhost.exchanges.get(binding.source)
        if source is not None and binding in source.bindings:
            vhost.remove_binding(binding)

    def inverse(self, state: State) -> list[Change]:
        vhost = state.vhost(self.vhost)
        source = vhost.exchanges.get(self.binding.source)
        if source is None or self.binding not in source.bindings:
            return []
        return [Bind(self.vhost, self.binding, user=vhost.binder(source, self.binding))]

    def inverse_of_effect(self, *, followed: bool) -> list[Change]:
        return [Bind(self.vhost, self.binding)] if followed else []
