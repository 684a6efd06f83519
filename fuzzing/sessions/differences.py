"""The named differences, documented in docs/differences.md.

A session with a named difference ends there, and succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuzzing.sessions.operator import PolicyStep, RequestStep
from jumpmq.amqp import methods as m

if TYPE_CHECKING:
    from fuzzing.sessions.pair import Difference


def _is_turn_under_a_shared_limit(difference: Difference) -> bool:
    """The same messages went to different consumers on a channel with a shared prefetch.

    Or a different message replaced a message returned by such a consumer.
    """
    shared = any(getattr(step.method, "global_", False) for step in difference.session)
    step = difference.step.method
    requeued = isinstance(step, m.BasicReject | m.BasicNack) and step.requeue
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    same = _bodies(theirs) == _bodies(ours) or (requeued and len(_delivered(theirs)) == len(_delivered(ours)))
    return shared and their_counts == our_counts and same


def _is_counted_get(difference: Difference) -> bool:
    """RabbitMQ counted messages of ``basic.get`` before the shared prefetch was set, and held a consumer back."""
    methods = [step.method for step in difference.session]
    limits = [place for place, one in enumerate(methods) if isinstance(one, m.BasicQos) and one.global_]
    got = bool(limits) and any(isinstance(one, m.BasicGet) and not one.no_ack for one in methods[: limits[-1]])
    (theirs, _), (ours, _) = difference.reference, difference.ours
    return got and len(_delivered(theirs)) < len(_delivered(ours))


def _bodies(said: Any) -> list[Any] | None:
    """The delivered messages of all consumers; None with other methods."""
    events = _events(said)
    return sorted(event[-1] for event in events) if all(event[0] == "basic.deliver" for event in events) else None


def _is_more_than_a_shared_limit(difference: Difference) -> bool:
    """RabbitMQ exceeded a shared prefetch after a later prefetch per consumer.

    Or it did not refuse a consumer of a quorum queue for the shared prefetch.
    """
    limits = [step.method.global_ for step in difference.session if isinstance(step.method, m.BasicQos)]
    lifted = True in limits and False in limits[limits.index(True) :]
    (theirs, _), (ours, _) = difference.reference, difference.ours
    return lifted and (_closes(ours, 540, "global qos") or len(_delivered(theirs)) > len(_delivered(ours)))


def _is_sorted_burst(difference: Difference) -> bool:
    """Messages that arrived at once at a priority queue were sorted; with a length limit, the rest was dropped."""
    declared = [
        field
        for step in difference.session
        if isinstance(step.method, m.QueueDeclare)
        for field in step.method.arguments
    ]
    arguments = {field.name for field in declared}
    with_priorities = "x-max-priority" in arguments or any(field.value == "quorum" for field in declared)
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    same = _bodies(theirs) is not None and _bodies(theirs) == _bodies(ours)
    if arguments & {"x-max-length", "x-max-length-bytes"}:
        same = same or len(_delivered(theirs)) == len(_delivered(ours))
    return (
        with_priorities and isinstance(difference.step.method, m.BasicPublish) and their_counts == our_counts and same
    )


def _is_conditional_delete(difference: Difference) -> bool:
    """RabbitMQ deletes no quorum queue on a condition."""
    return _closes(difference.reference[0], 540, "queue.delete operations with")


def _is_wrong_age(difference: Difference) -> bool:
    """RabbitMQ answers an invalid age with an internal error."""
    step = difference.step
    if not isinstance(step, PolicyStep) or step.body is None or step.body["definition"].get("max-age") != "soon":
        return False
    (theirs, _), (ours, _) = difference.reference, difference.ours
    return theirs == {(0, 0): [("policy", 500, "")]} and [event[:2] for event in ours[0, 0]] == [("policy", 400)]


def _is_said_of_an_expression(difference: Difference) -> bool:
    """The regular expression engines describe an invalid expression in different words."""
    (theirs, _), (ours, _) = difference.reference, difference.ours
    said = _events(theirs) + _events(ours)
    return all(event[:2] == ("policy", 400) and "regular expression" in event[2] for event in said)


def _is_more_by_an_operator(difference: Difference) -> bool:
    """RabbitMQ 4.0 lets operator policies set more than limits."""
    step = difference.step
    if not isinstance(step, PolicyStep) or step.kind != "operator-policies" or step.body is None:
        return False
    (_, _), (ours, _) = difference.reference, difference.ours
    more = {"overflow", "queue-version", "queue-master-locator"} & step.body["definition"].keys()
    return any(f'<<"{key}">>' in event[2] for key in more for event in _events(ours))


def _is_list_of_nothing(difference: Difference) -> bool:
    """RabbitMQ lists bindings of missing objects."""
    step = difference.step
    (theirs, _), (ours, _) = difference.reference, difference.ours
    asked = isinstance(step, RequestStep) and step.verb == "GET" and "bindings" in step.path
    return asked and theirs[0, 0][0][:2] == ("GET", 200) and ours == {(0, 0): [("GET", 404, "")]}


def _is_null_in_a_binding(difference: Difference) -> bool:
    """RabbitMQ answers null in a binding with an internal error, before all other errors."""
    step = difference.step
    (theirs, _), _ = difference.reference, difference.ours
    asked = isinstance(step, RequestStep) and (step.verb, step.path[:9]) == ("POST", "bindings/")
    return asked and theirs == {(0, 0): [("POST", 500, "")]}


def _is_unlike_json(difference: Difference) -> bool:
    """A field has a value of a type that JSON lacks."""
    asked = isinstance(difference.step, RequestStep) and difference.step.verb == "GET"
    return asked and _show_the_same(difference.reference, difference.ours)


def _show_the_same(theirs: Any, ours: Any) -> bool:
    """Return true if two answers differ only in the notation of missing values and decimals."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(_show_the_same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        return len(theirs) == len(ours) and all(map(_show_the_same, theirs, ours))
    void = theirs == "undefined" and ours is None
    decimal = isinstance(theirs, float) and isinstance(ours, str) and _DECIMAL.fullmatch(ours) is not None
    return void or decimal or theirs == ours


def _is_late_letter(difference: Difference) -> bool:
    """The answers differ only in the position of dead letters among other messages."""
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    if their_counts != our_counts or theirs.keys() != ours.keys() or not any(map(_has_died, _delivered(theirs))):
        return False
    return all(_without_letters(theirs[one]) == _without_letters(ours[one]) for one in theirs)


def _without_letters(events: list[Any]) -> list[list[Any]]:
    """Methods without deliveries, other messages, and dead letters, in order; without delivery tags."""
    messages = [event for event in events if event[0] == "basic.deliver"]
    return [
        [event for event in events if event[0] != "basic.deliver"],
        [(event[1], *event[3:]) for event in messages if not _has_died(event)],
        [(event[1], *event[3:]) for event in messages if _has_died(event)],
    ]


def _has_died(event: Any) -> bool:
    return "'x-death'" in repr(event[6])


def _is_got_as_it_came(difference: Difference) -> bool:
    """RabbitMQ's ``basic.get`` on a quorum queue omits the delivery count of a new message, and counts it as ready."""
    (theirs, _), (ours, _) = difference.reference, difference.ours
    if not isinstance(difference.step.method, m.BasicGet) or theirs.keys() != ours.keys():
        return False
    same = all(_without_count(theirs[one]) == _without_count(ours[one]) for one in ours)
    return same and _is_counted(_events(ours)) and not _is_counted(_events(theirs))


def _without_count(events: list[Any]) -> list[Any]:
    """Events without the delivery count and the remaining count of a ``basic.get``."""
    plain = []
    for event in events:
        if event[0] == "basic.get-ok":
            properties = dict(event[6])
            headers = [field for field in properties.pop("headers", []) if field[0] != "x-delivery-count"]
            event = (*event[:5], properties, headers, *event[7:])
        plain.append(event)
    return plain


def _is_counted(events: list[Any]) -> bool:
    return any(event[0] == "basic.get-ok" and "'x-delivery-count'" in repr(event[6]) for event in events)


def _is_internal_error(difference: Difference) -> bool:
    """RabbitMQ had an internal error where JumpMQ refuses or ignores a method."""
    (theirs, _), (ours, _) = difference.reference, difference.ours
    return _closes(theirs, 541) and not _closes(ours, 541)


def _is_order_of_what_came_back(difference: Difference) -> bool:
    """Messages of several consumers were returned at once, and redelivered in another order."""
    step = difference.step.method
    returned = isinstance(step, m.BasicRecover | m.BasicRecoverAsync | m.ChannelClose | m.ConnectionClose) or (
        isinstance(step, m.BasicNack) and step.requeue and step.multiple
    )
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    consumers = sum(isinstance(one.method, m.BasicConsume) for one in difference.session)
    same = their_counts == our_counts and _bodies(theirs) is not None and _bodies(theirs) == _bodies(ours)
    return (returned or step is None) and consumers > 1 and same


def _is_under_way_to_a_closed_channel(difference: Difference) -> bool:
    """RabbitMQ's deliveries to a channel closed by an error were in transit from another home."""
    (theirs, their_counts), (ours, our_counts) = difference.reference, difference.ours
    if their_counts != our_counts or theirs.keys() != ours.keys():
        return False
    closed = [one for one in ours if any(event[0] == "channel.close" for event in ours[one])]
    return all(
        theirs[one] == ours[one]
        or (one in closed and [event for event in theirs[one] if event[0] != "basic.deliver"] == ours[one])
        for one in ours
    )


def _delivered(said: Any) -> list[Any]:
    return [event for event in _events(said) if event[0] == "basic.deliver"]


def _closes(said: Any, code: int, text: str = "") -> bool:
    """Return true if the connection was closed with the code, and with ``text`` in the reply text."""
    return any(event[:2] == ("connection.close", code) and text in event[2] for event in _events(said))


def _events(said: Any) -> list[Any]:
    """The events of all channels."""
    return [event for events in said.values() for event in events]


NAMED: dict[str, Callable[[Difference], bool]] = {
    "Timing and order: whose turn it is under a global prefetch": _is_turn_under_a_shared_limit,
    "Timing and order: a global prefetch counts what was got": _is_counted_get,
    "Timing and order: a prefetch for each consumer lifts the global one": _is_more_than_a_shared_limit,
    "Timing and order: what several consumers held comes back": _is_order_of_what_came_back,
    "Timing and order: what came at once is sorted by priority": _is_sorted_burst,
    "Timing and order: dead letters on their way": _is_late_letter,
    "Timing and order: what has just come to a quorum queue is got": _is_got_as_it_came,
    "Timing and order: what is on its way to a channel that is closed": _is_under_way_to_a_closed_channel,
    "Refusals: a quorum queue is deleted on a condition": _is_conditional_delete,
    "Refusals: a policy with a wrong age": _is_wrong_age,
    "Refusals: 541": _is_internal_error,
    "Between 3.10 and 4.0: what operator policies may set": _is_more_by_an_operator,
    "The management API: bindings of what is not there": _is_list_of_nothing,
    "The management API: null in the arguments of a binding": _is_null_in_a_binding,
    "The management API: fields that JSON has no type for": _is_unlike_json,
    "Refusals: what is said of a regular expression": _is_said_of_an_expression,
}
"""Predicates of the differences, by the name in docs/differences.md."""


def name_of(difference: Difference) -> str | None:
    """The name in docs/differences.md; None for an unnamed difference."""
    for name, matches in NAMED.items():
        if matches(difference):
            return name
    return "found before" if signature(difference) in passed_over else None


passed_over: set[tuple[str, ...]] = set()
"""Signatures of the differences already found in this run."""


def signature(difference: Difference) -> tuple[str, ...]:
    """Common part of two findings of a difference: the method, and the kinds and texts of the events."""
    return type(difference.step.method).__name__, _outline(difference.reference), _outline(difference.ours)


def _outline(seen: Any) -> str:
    said, counts = seen
    events = sorted({_VARYING.sub("_", repr(event[:3])) for event in _events(said)})
    return f"{events} {'counts' if counts else ''}"


_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?")

_VARYING = re.compile(r"'[^' ]*' in|\d+")
