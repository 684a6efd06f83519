"""Checks of queue declaration arguments, with RabbitMQ's texts; ``settings.py`` lists the arguments."""

from collections.abc import Callable
from typing import Protocol

from jumpmq.amqp import erlang
from jumpmq.amqp.fields import INTEGER_TYPES, Field

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
MAX_MILLISECONDS = 10 * 365 * 24 * 3600 * 1000
MAX_PRIORITY = 255


class DeclaredArguments(Protocol):
    """All arguments of a declaration."""

    def get(self, name: str) -> Field | None:
        """Return the first field of a given name."""


Check = Callable[[Field, DeclaredArguments], str | None]
"""Checks an argument, given all arguments: returns the problem in Erlang's notation, or None."""


def any_integer(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for an integer, possibly negative."""
    if field.type in INTEGER_TYPES:
        return None
    return erlang.string(f"expected integer, got {erlang.TYPE_NAMES[field.type]}")


def integer(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for a non-negative integer."""
    if (problem := any_integer(field, arguments)) is not None:
        return problem
    return f"{{value_negative,{field.value}}}" if field.value < 0 else None


def milliseconds(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for milliseconds, at most ten years."""
    if (problem := integer(field, arguments)) is not None:
        return problem
    return f"{{value_too_large,{field.value}}}" if field.value > MAX_MILLISECONDS else None


def positive_milliseconds(field: Field, arguments: DeclaredArguments) -> str | None:
    """As :func:`milliseconds`, but above 0."""
    if (problem := milliseconds(field, arguments)) is not None:
        return problem
    return "{value_zero,0}" if field.value == 0 else None


def priority(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for a maximum priority."""
    if (problem := integer(field, arguments)) is not None:
        return problem
    return f"{{max_value_exceeded,{field.value}}}" if field.value > MAX_PRIORITY else None


def anything(field: Field, arguments: DeclaredArguments) -> str | None:
    """Accept any value: RabbitMQ since 4.0 only compares the argument when the queue is declared again."""
    return None


def _of_type(field: Field, wanted: str) -> str | None:
    return None if field.type == wanted else f"{{unacceptable_type,{erlang.TYPE_NAMES[field.type]}}}"


def string(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for a string."""
    return _of_type(field, "S")


def boolean(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for true or false."""
    return _of_type(field, "t")


def dead_letter_key(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for a string, next to a dead letter exchange."""
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return None if arguments.get("x-dead-letter-exchange") is not None else "routing_key_but_no_dlx_defined"


def overflow(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the behaviour of a full queue."""
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return None if field.value in OVERFLOWS else "invalid_overflow"


def one_of(what: str, values: tuple[str, ...]) -> Check:
    """Return a check for the string ``values`` only; ``what`` names the values in the error."""

    def check(field: Field, arguments: DeclaredArguments) -> str | None:
        if (problem := _of_type(field, "S")) is not None:
            return problem
        shown = erlang.plain(field.type, field.value)
        return None if field.value in values else erlang.string(f"unsupported {what} '{shown}'")

    return check


def positive(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check for an integer above 0."""
    if (problem := integer(field, arguments)) is not None:
        return problem
    return "{value_zero,0}" if field.value == 0 else None


def word_of(words: tuple[str, ...], problem: str) -> Check:
    """Return a check for one of the string ``words``, with the error for further values."""

    def check(field: Field, arguments: DeclaredArguments) -> str | None:
        if (wrong_type := _of_type(field, "S")) is not None:
            return wrong_type
        return None if field.value in words else problem

    return check


def age(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the retention time of a stream."""
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return "invalid_max_age" if seconds_of(field.value) is None else None


def seconds_of(age: str) -> int | None:
    """Parse an age such as ``7D`` or ``1h`` (positive number of Y, M, D, h, m or s) to seconds; None if invalid."""
    number, unit = age[:-1], SECONDS.get(age[-1:])
    if unit is None or not number.isascii() or not number.isdigit():
        return None
    return int(number.lstrip("0")[:15] or 0) * unit or None  # a longer number exceeds every lifetime anyway


SECONDS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}


def timeout_of(value: object) -> int | None:
    """Return the acknowledgement timeout of a delivery in milliseconds; None for an invalid value, which is ignored."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def version(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the version of a classic queue."""
    if (problem := integer(field, arguments)) is not None:
        return problem
    return None if field.value in (1, 2) else erlang.string(f"unsupported queue version '{field.value}'")


SLOT_KEYS = ("routing-key", "message-id", "correlation-id")
MAX_SLOTS = 1024
MAX_IN_FLIGHT = 65535


def slots(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the number of slots, 1 to 1024; not allowed with priorities, whose order conflicts."""
    if (problem := positive(field, arguments)) is not None:
        return problem
    if field.value > MAX_SLOTS:
        return f"{{max_value_exceeded,{field.value}}}"
    if arguments.get("x-max-priority") is not None:
        return erlang.string("a queue has slots or priorities, not both: remove x-max-priority or x-slots")
    return None


def slot_key(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the key that selects a message's slot; requires a number of slots."""
    if (problem := _of_type(field, "S")) is not None:
        return problem
    key = str(field.value)
    if key not in SLOT_KEYS and not (key.startswith("header:") and 0 < len(key.encode()) - len("header:") <= 128):
        return erlang.string("expected routing-key, message-id, correlation-id or header:NAME, NAME of 1 to 128 octets")
    return _beside_slots(arguments)


def in_flight_per_slot(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the maximum number of unacknowledged messages per slot; requires a number of slots."""
    if (problem := positive(field, arguments)) is not None:
        return problem
    if field.value > MAX_IN_FLIGHT:
        return f"{{max_value_exceeded,{field.value}}}"
    return _beside_slots(arguments)


def _beside_slots(arguments: DeclaredArguments) -> str | None:
    return None if arguments.get("x-slots") is not None else erlang.string("x-slots is missing")


queue_locator = word_of(
    ("client-local", "balanced", "random", "least-leaders", "min-masters"), "invalid_queue_locator_arg"
)
RETRY_TYPES = ("disabled", "all", "failed", "returned")


def retry_type(field: Field, arguments: DeclaredArguments) -> str | None:
    """Check the argument that selects the returned messages to be delayed."""
    if (problem := _of_type(field, "S")) is not None:
        return problem
    if field.value not in RETRY_TYPES:
        return erlang.string(f"expected {', '.join(RETRY_TYPES)}")
    if field.value != "disabled" and arguments.get("x-delayed-retry-min") is None:
        return erlang.string("x-delayed-retry-min is missing")
    return None


dead_letter_strategy = word_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy")
queue_mode = one_of("queue mode", ("default", "lazy"))
