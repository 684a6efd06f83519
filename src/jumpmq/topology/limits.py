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
"""The first two are RabbitMQ's. Queues and bindings count existing objects created by the user. The rate is in
messages per second, over all connections and requests of the user.
"""

VIRTUAL_HOST_LIMITS = ("max-connections", "max-queues", "max-bindings")
"""The last one is beyond RabbitMQ; bindings of the default exchange do not count."""

LimitValues = Mapping[str, int]
"""Values by limit name; negative values mean unlimited."""


def check(name: str, value: object, known: Iterable[str], subject: str) -> None:
    """
    Args: known: names of limits. subject: owner of the limits, for the error about an unknown name.

    Raises:
        PreconditionFailed: an unknown limit, or not a whole number.
    """
    if name not in known:
        term = f"{{{erlang.json_term(name)},{erlang.json_term(value)}}}"
        raise PreconditionFailed(f"Unrecognised terms [{term}] in {subject}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise PreconditionFailed(f"{name} should be a number, actually was {erlang.json_term(value)}")
    if name == "max-publish-rate" and not value:
        raise PreconditionFailed(f"{name} should be above 0, or negative for no limit")


def reached(limits: LimitValues, name: str, count: int) -> int | None:
    """Return the limit if ``count`` has reached it; otherwise None."""
    limit = limits.get(name, -1)
    return limit if 0 <= limit <= count else None
