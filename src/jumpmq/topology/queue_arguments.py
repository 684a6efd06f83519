"""The arguments of a queue's declaration, validated by the queue type (:attr:`Queue.argument_checks`).

Unknown arguments are kept and ignored, as RabbitMQ does.
"""

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import DECLARABLE_TYPES, DEFAULT_QUEUE_TYPE, QUEUE_TYPES
from jumpmq.queues.argument_checks import Check, one_of
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.definitions import QueueDefinition

SERVER_NAMED_PREFIX = "amq.gen-"

ARGUMENT_NAMES = frozenset().union(*(QUEUE_TYPES[name].argument_checks for name in DECLARABLE_TYPES))
"""Arguments known to at least one queue type; other types refuse the argument."""

_QUEUE_TYPE = one_of("queue type", DECLARABLE_TYPES)


def check_arguments(definition: QueueDefinition) -> None:
    """
    Raises: PreconditionFailed: unknown queue type, or an argument or value that the type does not
    accept.
    """
    subject = f"queue '{definition.name}' in vhost '{definition.vhost}'"
    arguments = definition.arguments
    if not arguments:
        return
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and exchange.type != "S":
        kind_of_field = erlang.TYPE_NAMES[exchange.type]
        raise PreconditionFailed(f"invalid type '{kind_of_field}' for arg '{exchange.name}' in {subject}")
    _refuse_wrong(_QUEUE_TYPE, "x-queue-type", arguments, subject)
    kind = QUEUE_TYPES[queue_type_of(arguments)]
    for name, check in kind.argument_checks.items():
        _refuse_wrong(check, name, arguments, subject)
    # RabbitMQ 4.0 adds a missing type, and thereby sorts the arguments.
    for field in arguments if arguments.get("x-queue-type") is not None else arguments.sorted():
        if field.name in ARGUMENT_NAMES and field.name not in kind.argument_checks:
            raise PreconditionFailed(f"invalid arg '{field.name}' for {subject} of queue type rabbit_{kind.type}_queue")
    if (problem := kind.problem_with(arguments)) is not None:
        raise PreconditionFailed(problem)


def check_properties(definition: QueueDefinition) -> None:
    """
    Raises: PreconditionFailed: a property of the declaration that the queue type does not support.
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
    """Return the queue type in the arguments."""
    field = arguments.get("x-queue-type")
    return DEFAULT_QUEUE_TYPE if field is None else str(field.value)


def _refuse_wrong(check: Check, name: str, arguments: Arguments, subject: str) -> None:
    field = arguments.get(name)
    if field is not None and (problem := check(field, arguments)) is not None:
        raise PreconditionFailed(f"invalid arg '{name}' for {subject}: {problem}")
