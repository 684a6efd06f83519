"""Changes of policies and operator policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jumpmq.topology.changes import resharding
from jumpmq.topology.changes.base import Change, ChangeInSteps, Steps
from jumpmq.topology.changes.preparing import Preparation
from jumpmq.topology.policies import Policies, Policy

if TYPE_CHECKING:
    from jumpmq.topology.state import State
    from jumpmq.topology.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class _Setting(ChangeInSteps):
    """Base of changes setting a policy.

    Attributes:
        operator: True for an operator policy.
        pattern: regular expression, searched in the names of queues and exchanges.
        definition: a JSON object; :mod:`jumpmq.topology.policy_definitions` has its keys.
        priority: of all matching policies, the one with the highest priority counts.
        apply_to: a key of :data:`jumpmq.topology.policies.APPLY_TO`.
    """

    operator: ClassVar[bool]
    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"

    @property
    def policy(self) -> Policy:
        """The new policy."""
        return Policy(self.vhost, self.name, self.pattern, self.definition, self.priority, self.apply_to)

    def check(self, state: State) -> None:
        state.vhost(self.vhost)
        self.policy.check(self.operator)

    def steps(self, state: State) -> Steps:
        vhost, policy = state.vhost(self.vhost), self.policy
        state.records.put_policy(policy, self.operator)
        return (yield from _bring_into_force(state, vhost, vhost.policies.with_policy(policy, self.operator)))


@dataclass(frozen=True, slots=True)
class SetPolicy(_Setting):
    """Add or replace a policy, effective at once."""

    operator: ClassVar[bool] = False

    def check(self, state: State) -> None:
        _Setting.check(self, state)
        resharding.check_policy(state, self.policy)

    def inverse(self, state: State) -> list[Change]:
        policy = state.vhost(self.vhost).policies.policies.get(self.name)
        return [ClearPolicy(self.vhost, self.name) if policy is None else SetPolicy(*_parts(policy))]


@dataclass(frozen=True, slots=True)
class SetOperatorPolicy(_Setting):
    """As :class:`SetPolicy`, for operator policies: they take limits only, and are merged with policies."""

    operator: ClassVar[bool] = True

    def inverse(self, state: State) -> list[Change]:
        policy = state.vhost(self.vhost).policies.operator_policies.get(self.name)
        return [ClearOperatorPolicy(self.vhost, self.name) if policy is None else SetOperatorPolicy(*_parts(policy))]


@dataclass(frozen=True, slots=True)
class _Clearing(ChangeInSteps):
    """Base of changes removing a policy."""

    operator: ClassVar[bool]
    vhost: str
    name: str

    def check(self, state: State) -> None:
        state.vhost(self.vhost).policies.get(self.name, self.operator)

    def steps(self, state: State) -> Steps:
        vhost = state.vhost(self.vhost)
        state.records.delete_policy(vhost.policies.get(self.name, self.operator), self.operator)
        return (yield from _bring_into_force(state, vhost, vhost.policies.without_policy(self.name, self.operator)))


@dataclass(frozen=True, slots=True)
class ClearPolicy(_Clearing):
    """Remove a policy."""

    operator: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ClearOperatorPolicy(_Clearing):
    """Remove an operator policy."""

    operator: ClassVar[bool] = True


def _parts(policy: Policy) -> tuple[Any, ...]:
    return policy.vhost, policy.name, policy.pattern, policy.definition, policy.priority, policy.apply_to


def _bring_into_force(state: State, vhost: VirtualHost, policies: Policies) -> Steps:
    shards = Preparation(state, vhost, policies)
    yield from shards.prepare(resharding.follow(state, vhost, policies))
    # One step up to the records: routing uses either the old policies and bindings, or the new ones.
    vhost.policies = policies
    following = vhost.in_force.follow()
    shards.publish()
    state.records.hand_over()
    # Limits of queues may follow later: thousands of queues take long, and are independent of each other.
    state.later(f"following the policies of vhost '{vhost.name}'", following)
    return shards.changes
