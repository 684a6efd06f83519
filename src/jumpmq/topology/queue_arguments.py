"""The declare arguments of queues: a table of what each may be, with RabbitMQ 3.10's texts.

Unknown arguments are kept and ignored, as RabbitMQ does.
"""

from collections.abc import Callable

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.topology import erlang
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.definitions import QueueDefinition

DEFAULT_QUEUE_TYPE = "classic"
QUEUE_TYPES = (DEFAULT_QUEUE_TYPE,)
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
MAX_MILLISECONDS = 10 * 365 * 24 * 3600 * 1000
MAX_PRIORITY = 255

Check = Callable[[Field, Arguments], str | None]
"""What is wrong with an argument, as Erlang would print it, or None; it is given all arguments."""


def check_arguments(definition: QueueDefinition) -> None:
    """
    Raises:
        PreconditionFailed: an argument is not what it may be.
    """
    subject = f"queue '{definition.name}' in vhost '{definition.vhost}'"
    for name, check in CHECKS.items():
        field = definition.arguments.get(name)
        if field is None:
            continue
        if name == "x-dead-letter-exchange" and field.type != "S":
            kind = erlang.TYPE_NAMES[field.type]
            raise PreconditionFailed(f"invalid type '{kind}' for arg '{name}' in {subject}")
        if (problem := check(field, definition.arguments)) is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {subject}: {problem}")
    for field in definition.arguments:
        if field.name in _OTHER_QUEUE_TYPES_ONLY:
            raise PreconditionFailed(f"invalid arg '{field.name}' for {subject} of queue type rabbit_classic_queue")


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


def _version(field: Field, arguments: Arguments) -> str | None:
    if (problem := _integer(field, arguments)) is not None:
        return problem
    return None if field.value in (1, 2) else erlang.string(f"unsupported queue version '{field.value}'")


CHECKS: dict[str, Check] = {
    "x-expires": _positive_milliseconds,
    "x-message-ttl": _milliseconds,
    "x-dead-letter-exchange": _string,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-max-length": _integer,
    "x-max-length-bytes": _integer,
    "x-max-priority": _priority,
    "x-overflow": _overflow,
    "x-queue-mode": _one_of("queue mode", ("default", "lazy")),
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-queue-type": _one_of("queue type", QUEUE_TYPES),
}
"""By argument, in the order in which RabbitMQ looks at them; also what a second declaration must repeat."""

_OTHER_QUEUE_TYPES_ONLY = frozenset(
    {
        "x-dead-letter-strategy", "x-delivery-limit", "x-initial-cluster-size", "x-max-age", "x-max-in-memory-bytes",
        "x-max-in-memory-length", "x-queue-leader-locator", "x-quorum-initial-group-size",
        "x-stream-max-segment-size-bytes",
    }
)  # fmt: skip
"""Arguments of quorum queues and streams, which a classic queue refuses."""
