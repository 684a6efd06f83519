"""The headers exchange: by the values of headers (AMQP 0-9-1, section 3.1.3.4, as RabbitMQ 3.10 reads it).

The binding's argument ``x-match`` says whether ``all`` (default) of its other arguments must be met, or ``any``.
Arguments whose names start with ``x-`` are not compared, unless it is ``all-with-x`` or ``any-with-x``.
"""

from collections.abc import Callable, Iterable
from typing import Any

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.topology import erlang
from jumpmq.topology.arguments import comparable
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges.base import Destination, Exchange

Headers = dict[str, tuple[str, Any]]
Matcher = Callable[[Headers], bool]

_MODES: dict[str, tuple[Callable[[Iterable[bool]], bool], bool]] = {
    "all": (all, False),
    "any": (any, False),
    "all-with-x": (all, True),
    "any-with-x": (any, True),
}
"""By the value of ``x-match``: how the outcomes count together, and whether ``x-`` arguments are compared."""


class HeadersExchange(Exchange):
    """Routing and binding keys are ignored."""

    type = "headers"

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        self._matchers: dict[Binding, Matcher] = {}

    def check(self, binding: Binding) -> None:
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
        self._matchers[binding] = _matcher(binding)

    def removed(self, binding: Binding, destination: Destination) -> None:
        del self._matchers[binding]

    def destinations(self, envelope: Envelope) -> Iterable[Destination]:
        headers = {field.name: comparable(field) for field in reversed(envelope.headers)}
        return dict.fromkeys(self.bindings[binding] for binding, matches in self._matchers.items() if matches(headers))


def _matcher(binding: Binding) -> Matcher:
    count, with_x = _MODES[binding.arguments.text("x-match") or "all"]
    conditions = [
        field for field in binding.arguments if field.name != "x-match" and (with_x or not field.name.startswith("x-"))
    ]
    return lambda headers: count(_meets(headers, condition) for condition in conditions)


def _meets(headers: Headers, condition: Field) -> bool:
    """Whether a header is there and has the wanted value; a void one stands for any value."""
    if condition.name not in headers:
        return False
    return condition.type == "V" or headers[condition.name] == comparable(condition)
