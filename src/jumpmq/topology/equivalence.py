"""Repeated declarations: as in RabbitMQ, a second declaration has to be equivalent to the first."""

from collections.abc import Iterable

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.queues import QUEUE_TYPES
from jumpmq.topology.arguments import Arguments, comparable
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.queue_arguments import queue_type_of


def check_exchange(current: Exchange, declared: ExchangeDefinition) -> None:
    """
    Raises: PreconditionFailed: the declaration differs from the existing exchange.
    """
    subject = f"exchange '{current.name}' in vhost '{current.vhost}'"
    _check_field("type", subject, erlang.atom(declared.type), erlang.atom(current.type))
    for name in ("durable", "auto_delete", "internal"):
        _check_flag(name, subject, getattr(declared, name), getattr(current, name))
    _check_arguments(subject, declared.arguments, current.arguments, current.compared_arguments)


def check_queue(current: QueueDefinition, declared: QueueDefinition) -> None:
    """
    Raises:
        PreconditionFailed: the queue was declared in another way. (Exclusiveness is checked by the caller.)
    """
    subject = f"queue '{current.name}' in vhost '{current.vhost}'"
    for name in ("durable", "auto_delete"):
        _check_flag(name, subject, getattr(declared, name), getattr(current, name))
    kind = queue_type_of(current.arguments)
    for name in QUEUE_TYPES[kind].argument_checks:
        if name == "x-queue-type":  # as in RabbitMQ 4.0 it is compared whether it was said or not
            _check_field(name, subject, queue_type_of(declared.arguments), kind)
        else:
            _check_arguments(subject, declared.arguments, current.arguments, [name])


def _check_flag(name: str, subject: str, received: bool, current: bool) -> None:
    _check_field(name, subject, str(received).lower(), str(current).lower())


def _check_field(name: str, subject: str, received: str, current: str) -> None:
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {subject}: received '{received}' but current is '{current}'"
        )


def _check_arguments(subject: str, received: Arguments, current: Arguments, names: Iterable[str]) -> None:
    for name in names:
        new, old = received.get(name), current.get(name)
        if new is not None and old is not None:
            if comparable(new) != comparable(old):
                raise PreconditionFailed(
                    f"inequivalent arg '{name}' for {subject}: received {_quoted(new)} but current is {_quoted(old)}"
                )
        elif new is not old:
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {subject}: received {_described(new)} but current is {_described(old)}"
            )


def _quoted(field: Field) -> str:
    return "none" if field.type == "V" else f"'{erlang.plain(field.type, field.value)}'"


def _described(field: Field | None) -> str:
    if field is None:
        return "none"
    return f"the value '{erlang.plain(field.type, field.value)}' of type '{erlang.TYPE_NAMES[field.type]}'"
