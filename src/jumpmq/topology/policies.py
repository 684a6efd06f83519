"""Policies: optional arguments for many queues and exchanges at once, chosen by name (RabbitMQ, "Policies").

One policy is in force for an object: the matching policy with the highest priority. Of several with that priority,
RabbitMQ takes any (by the order of a hash table); here the first by name counts. An operator policy, chosen in the same
way, is merged with it: of two limits the stricter one counts.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.queues import QUEUE_TYPES
from jumpmq.queues.arguments import lower
from jumpmq.topology import patterns, policy_definitions
from jumpmq.topology.bindings import DestinationKind

APPLY_TO = {
    "queues": ("queue",),
    **{kind.policy_target: (kind.type,) for kind in QUEUE_TYPES.values() if kind.policy_target},
    "exchanges": ("exchange",),
    "all": ("queue", "exchange"),
}
"""Kinds of objects, or queue types, by ``apply-to`` (RabbitMQ since 3.12)."""


class InvalidPolicy(PreconditionFailed):
    """A policy is refused; the text has one line per problem, in RabbitMQ's words."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy or operator policy of a virtual host.

    Attributes:
        pattern: regular expression, searched in names.
        definition: a JSON object.
        priority: a number; the highest counts.
        apply_to: a key of ``APPLY_TO``.
    """

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"

    def check(self, operator: bool) -> None:
        """
        Raises: InvalidPolicy: a part of the policy is invalid.
        """
        try:
            problems = self._problems(operator)
        except RecursionError:
            problems = ["definition is nested too deeply"]
        if problems:
            raise InvalidPolicy("\n".join(problems))

    def _problems(self, operator: bool) -> list[str]:
        if (problem := _text_problem([self.name, self.pattern, self.definition, self.apply_to])) is not None:
            return [problem]
        found = (  # in RabbitMQ's order
            policy_definitions.problem_of(self.definition, operator),
            _apply_to_problem(self.apply_to),
            _pattern_problem(self.pattern),
            _priority_problem(self.priority),
        )
        return [problem for problem in found if problem is not None]

    def matches(self, kind: DestinationKind, name: str, queue_type: str = "") -> bool:
        """Return True if the policy applies to an exchange, or to a queue of a type, with this name."""
        meant = APPLY_TO[self.apply_to]
        return (kind in meant or queue_type in meant) and patterns.search(self.pattern, name)


class InForce(NamedTuple):
    """Policies in force for an object."""

    policy: Policy | None = None
    operator_policy: Policy | None = None

    @property
    def definition(self) -> Mapping[str, Any]:
        """Return both definitions merged."""
        if self.operator_policy is None:
            return self.policy.definition if self.policy is not None else {}
        merged = dict(self.operator_policy.definition)
        for key, value in self.policy.definition.items() if self.policy is not None else ():
            merged[key] = lower(value, merged[key]) if key in merged else value
        return merged


NOTHING_IN_FORCE = InForce()


class Policies:
    """The policies of a virtual host.

    Attributes:
        policies, operator_policies: by name.
    """

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self._order: list[Policy] = []
        self._operator_order: list[Policy] = []

    def put(self, policy: Policy, operator: bool) -> None:
        """Add or replace a policy."""
        self._of_kind(operator)[policy.name] = policy
        self._sort()

    def remove(self, name: str, operator: bool) -> Policy:
        """Remove a policy and return the removed policy.

        Raises:
            NotFound: no policy has this name.
        """
        policy = self.get(name, operator)
        del self._of_kind(operator)[name]
        self._sort()
        return policy

    def get(self, name: str, operator: bool) -> Policy:
        """Return the policy, or operator policy, of a given name.

        Raises:
            NotFound: no policy has this name.
        """
        try:
            return self._of_kind(operator)[name]
        except KeyError:
            raise NotFound(f"no {'operator policy' if operator else 'policy'} '{name}'") from None

    def has(self, name: str, operator: bool) -> bool:
        """True if a policy, or operator policy, of a given name exists."""
        return name in self._of_kind(operator)

    def all(self, operator: bool) -> list[Policy]:
        """Return the policies, or the operator policies, in the order of their setting."""
        return list(self._of_kind(operator).values())

    def in_force(
        self, kind: DestinationKind, name: str, refused: Set[str] = frozenset(), queue_type: str = ""
    ) -> InForce:
        """Return the policies in force for a queue or exchange of a given name.

        Args:
            refused: keys that the object does not support; as in RabbitMQ, a policy with one of them does not apply.
            queue_type: kind of a queue.
        """
        if not self._order and not self._operator_order:
            return NOTHING_IN_FORCE
        policy = _first(self._order, kind, name, refused, queue_type)
        operator_policy = _first(self._operator_order, kind, name, refused, queue_type)
        return NOTHING_IN_FORCE if policy is operator_policy is None else InForce(policy, operator_policy)

    def with_policy(self, policy: Policy, operator: bool = False) -> "Policies":
        """Return the policies as they would be after a policy was put."""
        changed = self._copy()
        changed.put(policy, operator)
        return changed

    def without_policy(self, name: str, operator: bool = False) -> "Policies":
        """Return the policies as they would be after a policy was removed.

        Raises:
            NotFound: no policy has this name.
        """
        changed = self._copy()
        changed.remove(name, operator)
        return changed

    def _copy(self) -> "Policies":
        copy = Policies()
        copy.policies, copy.operator_policies = dict(self.policies), dict(self.operator_policies)
        copy._sort()
        return copy

    def _of_kind(self, operator: bool) -> dict[str, Policy]:
        return self.operator_policies if operator else self.policies

    def _sort(self) -> None:
        self._order = sorted(self.policies.values(), key=_rank)
        self._operator_order = sorted(self.operator_policies.values(), key=_rank)


def _rank(policy: Policy) -> tuple[float, str]:
    return -policy.priority, policy.name


def _first(order: list[Policy], kind: DestinationKind, name: str, refused: Set[str], queue_type: str) -> Policy | None:
    return next(
        (one for one in order if one.matches(kind, name, queue_type) and refused.isdisjoint(one.definition)),
        None,
    )


def _priority_problem(priority: object) -> str | None:
    if isinstance(priority, int | float) and not isinstance(priority, bool) and math.isfinite(priority):
        return None
    return f"priority should be a number, actually was {erlang.json_term(priority)}"


def _pattern_problem(pattern: object) -> str | None:
    if not isinstance(pattern, str):
        return f"pattern should be a binary but was {erlang.json_term(pattern)}"
    try:
        patterns.compiled(pattern)
    except patterns.InvalidPattern as error:
        return f"pattern should be regular expression but is invalid: {{{erlang.string(str(error))}}}"
    return None


_APPLY_TO = "'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'"  # as in RabbitMQ 4.0


def _apply_to_problem(apply_to: object) -> str | None:
    if isinstance(apply_to, str) and apply_to in APPLY_TO:
        return None
    shown = apply_to if isinstance(apply_to, str) else erlang.json_term(apply_to)
    return f"apply-to '{shown}' unrecognised; should be one of: {_APPLY_TO}"


def _text_problem(value: object) -> str | None:
    """Return the problem with a string that cannot be written as UTF-8: JSON may hold half a surrogate pair."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{erlang.json_term(value)} is not text"
        case list():
            return next(filter(None, map(_text_problem, value)), None)
        case dict():
            return _text_problem([*value, *value.values()])
    return None
