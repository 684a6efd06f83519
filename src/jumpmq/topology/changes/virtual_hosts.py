"""Changes of virtual hosts and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import DECLARABLE_TYPES
from jumpmq.topology import limits
from jumpmq.topology.changes.base import Change, ChangeInSteps, Steps
from jumpmq.topology.changes.queues import DeleteQueue
from jumpmq.topology.changes.users import ClearPermissions, ClearTopicPermissions
from jumpmq.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from jumpmq.topology.state import State


@dataclass(frozen=True, slots=True)
class AddVirtualHost(Change):
    """Add a virtual host with the predeclared exchanges. If it exists, only the given values change.

    Attributes:
        default_queue_type: type of durable queues declared without one; None for no change.
        description, tags: texts for operators; None for no change.
        home: number of the home that serves its clients, 0 for any; None for no change.
    """

    name: str
    default_queue_type: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    home: int | None = None

    def check(self, state: State) -> None:
        if self.default_queue_type is not None and self.default_queue_type not in DECLARABLE_TYPES:
            raise PreconditionFailed(f"unsupported queue type '{self.default_queue_type}'")

    def effect(self, state: State) -> None:
        is_new = self.name not in state.vhosts
        if is_new:
            state.vhosts[self.name] = VirtualHost(self.name, state.records, state.holdings, state.fences)
        vhost = state.vhosts[self.name]
        given = {name: getattr(self, name) for name in ("default_queue_type", "description", "tags", "home")}
        for name, value in given.items():
            if value is not None:
                setattr(vhost, name, value)
        if is_new or any(value is not None for value in given.values()):
            state.records.put_virtual_host(vhost)

    def inverse(self, state: State) -> list[Change]:
        vhost = state.vhosts.get(self.name)
        if vhost is None:
            return [DeleteVirtualHost(self.name)]
        return [AddVirtualHost(vhost.name, vhost.default_queue_type, vhost.description, vhost.tags, vhost.home)]

    def changes_nothing(self, state: State) -> bool:
        if (vhost := state.vhosts.get(self.name)) is None:
            return False
        said = self.default_queue_type, self.description, self.tags, self.home
        present = vhost.default_queue_type, vhost.description, vhost.tags, vhost.home
        return all(new in (None, old) for new, old in zip(said, present, strict=True))


@dataclass(frozen=True, slots=True)
class DeleteVirtualHost(ChangeInSteps):
    """Delete a virtual host with all contents and permissions."""

    name: str

    def check(self, state: State) -> None:
        state.vhost(self.name)

    def steps(self, state: State) -> Steps:
        vhost = state.vhosts.pop(self.name)
        state.revision += 1  # before the steps: conclusions from the virtual host are outdated from now on
        for leave in state.leaving:  # its users stop using it, so that it can be taken apart
            leave(vhost)
        queues = list(vhost.declared.values())
        for declared in queues:
            yield from vhost.removing_bindings_to(declared.destination)
            vhost.take_queue(declared)
            yield
        for operator in (False, True):
            for policy in vhost.policies.all(operator):
                state.records.delete_policy(policy, operator)
        yield from vhost.removing_exchanges()
        for user in state.users.values():
            ClearPermissions(user.name, self.name).effect(state)
            ClearTopicPermissions(user.name, self.name).effect(state)
        state.past.add(vhost.past)
        vhost.past = state.past  # its channels are still closing
        state.records.put_virtual_host_limits(self.name, {})
        state.records.put_tracing(self.name, enabled=False)
        state.records.delete_virtual_host(self.name)
        state.records.hand_over()
        state.drop_contents(queues)
        for declared in queues:
            if declared.contents is not None:
                declared.contents.delete()
                yield
        return [DeleteQueue(self.name, declared.name, declared.id) for declared in queues]


@dataclass(frozen=True, slots=True)
class SetTracing(Change):
    """Start or stop copying a virtual host's messages, published and delivered, to ``amq.rabbitmq.trace``."""

    vhost: str
    enabled: bool

    def check(self, state: State) -> None:
        state.vhost(self.vhost)

    def effect(self, state: State) -> None:
        state.vhost(self.vhost).tracing = self.enabled
        state.records.put_tracing(self.vhost, self.enabled)


@dataclass(frozen=True, slots=True)
class SetVirtualHostLimit(Change):
    """Set one of a virtual host's limits, :data:`jumpmq.topology.limits.VIRTUAL_HOST_LIMITS`; negative is unlimited."""

    vhost: str
    limit: str
    value: int

    def check(self, state: State) -> None:
        state.vhost(self.vhost)
        limits.check(self.limit, self.value, limits.VIRTUAL_HOST_LIMITS, "limits")

    def effect(self, state: State) -> None:
        vhost = state.vhost(self.vhost)
        vhost.limits[self.limit] = self.value
        state.records.put_virtual_host_limits(vhost.name, vhost.limits)

    def inverse(self, state: State) -> list[Change]:
        value = state.vhost(self.vhost).limits.get(self.limit)
        if value is None:
            return [ClearVirtualHostLimit(self.vhost, self.limit)]
        return [SetVirtualHostLimit(self.vhost, self.limit, value)]


@dataclass(frozen=True, slots=True)
class ClearVirtualHostLimit(Change):
    """Clear a limit of a virtual host."""

    vhost: str
    limit: str

    def check(self, state: State) -> None:
        state.vhost(self.vhost)

    def effect(self, state: State) -> None:
        vhost = state.vhost(self.vhost)
        if vhost.limits.pop(self.limit, None) is not None:
            state.records.put_virtual_host_limits(vhost.name, vhost.limits)
