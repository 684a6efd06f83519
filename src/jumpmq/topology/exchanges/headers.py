"""The headers exchange routes by the values of headers (AMQP 0-9-1, section 3.1.3.4, as RabbitMQ 3.10 reads it).

The other arguments of a binding are its conditions. The argument ``x-match`` says whether a message has to meet ``all``
conditions (default) or ``any``. Arguments with names that start with ``x-`` are conditions only if ``x-match`` is
``all-with-x`` or ``any-with-x``.

The exchange looks up bindings by the conditions that a message meets. A binding with ``any`` is listed under each of
its conditions. A binding with ``all`` is listed under one of its conditions only: the one that the fewest other
bindings share. Messages that do not meet this condition never reach the binding, and the binding costs them nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.topology.arguments import comparable
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange

Condition = tuple[str, Any]
"""Name of a header and its required value, or ``_ANY``."""

_ANY = None

_MODES = {"all": (True, False), "any": (False, False), "all-with-x": (True, True), "any-with-x": (False, True)}
"""By the value of ``x-match``: whether all must be met, and whether ``x-`` arguments are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """A binding: conditions that must all be met, and the conditions under which the binding is listed."""

    destination: Destination
    together: frozenset[Condition]
    found_by: tuple[Condition, ...]


class HeadersExchange(Exchange):
    """Routes by headers alone; routing keys and binding keys are ignored."""

    type = "headers"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._rules: dict[Binding, _Rule] = {}
        self._found: dict[Condition | None, dict[_Rule, None]] = {None: {}}

    def check(self, binding: Binding, queue_type: str | None) -> None:
        field = binding.arguments.get("x-match")
        if field is None:
            return
        value = erlang.term(field.type, field.value)
        if field.type != "S":
            kind = erlang.TYPE_NAMES[field.type]
            raise PreconditionFailed(f"Invalid x-match field type {kind} (value {value}); expected longstr")
        if field.value not in _MODES:
            expected = "expected all, any, all-with-x, or any-with-x"
            raise PreconditionFailed(f"Invalid x-match field value {value}; {expected}")

    def added(self, binding: Binding, destination: Destination) -> None:
        needs_all, conditions = _conditions(binding)
        if not needs_all:
            rule = _Rule(destination, frozenset(), tuple(conditions))
        elif conditions:
            rarest = min(conditions, key=lambda condition: len(self._found.get(condition, ())))
            rule = _Rule(destination, frozenset(conditions), (rarest,))
        else:
            rule = _Rule(destination, frozenset(), ())
            self._found[None][rule] = None
        self._rules[binding] = rule
        for condition in rule.found_by:
            self._found.setdefault(condition, {})[rule] = None

    def removed(self, binding: Binding, destination: Destination) -> None:
        rule = self._rules.pop(binding)
        self._found[None].pop(rule, None)
        for condition in rule.found_by:
            del self._found[condition][rule]
            if not self._found[condition]:
                del self._found[condition]

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        met: set[Condition] = set()
        for field in {field.name: field for field in reversed(envelope.headers)}.values():
            met.add((field.name, _ANY))
            met.add((field.name, _hashable(comparable(field))))
        found: dict[_Rule, None] = {}  # each once: of bindings with any of thousands of arguments all may be met
        for condition in (None, *met):
            if condition in self._found:
                found |= self._found[condition]
        return dict.fromkeys(rule.destination for rule in found if rule.together <= met)


def _conditions(binding: Binding) -> tuple[bool, set[Condition]]:
    """Return True if all conditions of a binding must be met, and the conditions."""
    needs_all, with_x = _MODES[binding.arguments.text("x-match") or "all"]
    conditions = {
        (field.name, _ANY if field.type == "V" else _hashable(comparable(field)))
        for field in binding.arguments
        if field.name != "x-match" and (with_x or not field.name.startswith("x-"))
    }
    return needs_all, conditions


def _hashable(value: Any) -> Any:
    """Return a dictionary key for a header's value; equal values have equal keys."""
    if isinstance(value, Field):
        return tuple(_hashable(part) for part in value)
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
