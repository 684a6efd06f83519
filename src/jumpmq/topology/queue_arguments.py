"""The declare arguments of queues: a table of what each may be, with RabbitMQ 3.10's texts.

Unknown arguments are kept and ignored, as RabbitMQ does.
"""

from collections.abc import Callable

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.queues import DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.queues.arguments import seconds_of
from jumpmq.topology import erlang
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.definitions import QueueDefinition

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
MAX_MILLISECONDS = 10 * 365 * 24 * 3600 * 1000
MAX_PRIORITY = 255
SERVER_NAMED_PREFIX = "amq.gen-"
MAX_SEGMENT = 3_000_000_000
"""Octets of a stream's segment at most."""

Check = Callable[[Field, Arguments], str | None]
"""What is wrong with an argument, as Erlang would print it, or None; it is given all arguments."""


def check_arguments(definition: QueueDefinition) -> None:
    """
    Raises:
        PreconditionFailed: there is no such kind of queue, the kind does not take an argument, or not this value.
    """
    subject = f"queue '{definition.name}' in vhost '{definition.vhost}'"
    arguments = definition.arguments
    if not arguments:
        return
    letters = arguments.get("x-dead-letter-exchange")
    if letters is not None and letters.type != "S":
        kind_of_field = erlang.TYPE_NAMES[letters.type]
        raise PreconditionFailed(f"invalid type '{kind_of_field}' for arg '{letters.name}' in {subject}")
    _check_value("x-queue-type", arguments, subject)
    kind = QUEUE_TYPES[queue_type_of(arguments)]
    for name in CHECKS:
        if name in kind.argument_names:
            _check_value(name, arguments, subject)
    for field in arguments:
        if field.name in CHECKS and field.name not in kind.argument_names:
            raise PreconditionFailed(f"invalid arg '{field.name}' for {subject} of queue type rabbit_{kind.type}_queue")
    if (segment := arguments.get("x-stream-max-segment-size-bytes")) is not None and segment.value > MAX_SEGMENT:
        raise PreconditionFailed("Exceeded max value for x-stream-max-segment-size-bytes")


def check_properties(definition: QueueDefinition) -> None:
    """
    Raises:
        PreconditionFailed: the kind of queue cannot be what the declaration says beside its arguments.
    """
    kind = QUEUE_TYPES[queue_type_of(definition.arguments)]
    if not kind.always_durable:
        return
    if definition.name.startswith(SERVER_NAMED_PREFIX):
        raise PreconditionFailed(f"Cannot declare a server-named queue for type rabbit_{kind.type}_queue")
    for name, wrong in (
        ("auto-delete", definition.auto_delete),
        ("exclusive-owner", definition.exclusive),
        ("non-durable", not definition.durable),
    ):
        if wrong:
            raise PreconditionFailed(
                f"invalid property '{name}' for queue '{definition.name}' in vhost '{definition.vhost}'"
            )


def queue_type_of(arguments: Arguments) -> str:
    """The kind of queue that arguments ask for."""
    field = arguments.get("x-queue-type")
    return DEFAULT_QUEUE_TYPE if field is None else str(field.value)


def _check_value(name: str, arguments: Arguments, subject: str) -> None:
    field = arguments.get(name)
    if field is None:
        return
    if (problem := CHECKS[name](field, arguments)) is not None:
        raise PreconditionFailed(f"invalid arg '{name}' for {subject}: {problem}")


def _integer(field: Field, arguments: Arguments) -> str | None:
    if field.type not in "bBsuIilL":
        return erlang.string(f"expected integer, got {erlang.TYPE_NAMES[field.type]}")
    return f"{{value_negative,{field.value}}}" if field.value < 0 else None


def _milliseconds(field: Field, arguments: Arguments) -> str | None:
    if (problem := _integer(field, arguments)) is not None:
        return problem
    return f"{{value_too_large,{field.value}}}" if field.value > MAX_MILLISECONDS else None


def _positive_milliseconds(field: Field, arguments: Arguments) -> str | None:
    if (problem := _milliseconds(field, arguments)) is not None:
        return problem
    return "{value_zero,0}" if field.value == 0 else None


def _priority(field: Field, arguments: Arguments) -> str | None:
    if (problem := _integer(field, arguments)) is not None:
        return problem
    return f"{{max_value_exceeded,{field.value}}}" if field.value > MAX_PRIORITY else None


def _of_type(field: Field, wanted: str) -> str | None:
    return None if field.type == wanted else f"{{unacceptable_type,{erlang.TYPE_NAMES[field.type]}}}"


def _string(field: Field, arguments: Arguments) -> str | None:
    return _of_type(field, "S")


def _boolean(field: Field, arguments: Arguments) -> str | None:
    return _of_type(field, "t")


def _dead_letter_key(field: Field, arguments: Arguments) -> str | None:
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return None if arguments.get("x-dead-letter-exchange") is not None else "routing_key_but_no_dlx_defined"


def _overflow(field: Field, arguments: Arguments) -> str | None:
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return None if field.value in OVERFLOWS else "invalid_overflow"


def _one_of(what: str, values: tuple[str, ...]) -> Check:
    def check(field: Field, arguments: Arguments) -> str | None:
        if (problem := _of_type(field, "S")) is not None:
            return problem
        shown = erlang.plain(field.type, field.value)
        return None if field.value in values else erlang.string(f"unsupported {what} '{shown}'")

    return check


def _positive(field: Field, arguments: Arguments) -> str | None:
    if (problem := _integer(field, arguments)) is not None:
        return problem
    return "{value_zero,0}" if field.value == 0 else None


def _any_integer(field: Field, arguments: Arguments) -> str | None:
    return None if field.type in "bBsuIilL" else erlang.string(f"expected integer, got {erlang.TYPE_NAMES[field.type]}")


def _word_of(words: tuple[str, ...], problem: str) -> Check:
    def check(field: Field, arguments: Arguments) -> str | None:
        if (wrong_type := _of_type(field, "S")) is not None:
            return wrong_type
        return None if field.value in words else problem

    return check


def _age(field: Field, arguments: Arguments) -> str | None:
    if (problem := _of_type(field, "S")) is not None:
        return problem
    return "invalid_max_age" if seconds_of(field.value) is None else None


def _version(field: Field, arguments: Arguments) -> str | None:
    if (problem := _integer(field, arguments)) is not None:
        return problem
    return None if field.value in (1, 2) else erlang.string(f"unsupported queue version '{field.value}'")


CHECKS: dict[str, Check] = {
    "x-expires": _positive_milliseconds,
    "x-message-ttl": _milliseconds,
    "x-dead-letter-exchange": _string,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _word_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _integer,
    "x-max-length-bytes": _integer,
    "x-max-in-memory-length": _integer,
    "x-max-in-memory-bytes": _integer,
    "x-max-priority": _priority,
    "x-overflow": _overflow,
    "x-queue-mode": _one_of("queue mode", ("default", "lazy")),
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-queue-type": _one_of("queue type", tuple(QUEUE_TYPES)),
    "x-quorum-initial-group-size": _positive,
    "x-delivery-limit": _any_integer,
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _integer,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _word_of(
        ("client-local", "balanced", "random", "least-leaders"), "invalid_queue_locator_arg"
    ),
    "x-queue-master-locator": _word_of(("client-local", "random", "min-masters"), "invalid_queue_locator_arg"),
}
"""By argument, in the order in which RabbitMQ looks at them; also what a second declaration must repeat."""
