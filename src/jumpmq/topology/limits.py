"""Limits that operators set on users and virtual hosts (RabbitMQ, "Per-User Limits", "Virtual Hosts and Limits")."""

from collections.abc import Iterable, Mapping

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed

USER_LIMITS = (
    "max-connections",
    "max-channels",
    "max-consumers",
    "max-queues",
    "max-bindings",
    "max-publish-rate",
)
"""The first two are RabbitMQ's. Queues and bindings are those that the user has made and that are there; the rate is in
messages a second, over all of the user's connections and requests."""

VIRTUAL_HOST_LIMITS = ("max-connections", "max-queues", "max-bindings")
"""The last one is beyond RabbitMQ; the default exchange's bindings do not count."""

Limits = Mapping[str, int]
"""What is set, by the limit's name; a negative number is no limit."""


def check(name: str, value: object, known: Iterable[str], subject: str) -> None:
    """
    Args:
        known: the limits that there are.
        subject: what they are limits of, for who names another.

    Raises:
        PreconditionFailed: there is no such limit, or it is not a whole number.
    """
    if name not in known:
        term = f"{{{erlang.json_term(name)},{erlang.json_term(value)}}}"
        raise PreconditionFailed(f"Unrecognised terms [{term}] in {subject}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(f"{name} should be a number, actually was {erlang.json_term(value)}")
    if name == "max-publish-rate" and not value:
        raise PreconditionFailed(f"{name} should be above 0, or negative for no limit")


def reached(limits: Limits, name: str, count: int) -> int | None:
    """The limit, if ``count`` has reached it; None if not, or where there is none."""
    limit = limits.get(name, -1)
    return limit if 0 <= limit <= count else None
