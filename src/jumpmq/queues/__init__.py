"""Queues: ready and unacknowledged messages, limits, expiry, round-robin delivery. No I/O: queues get the store as an
argument.

Each kind of queue has a file; this is the registry of kinds. Class attributes declare the capabilities of a kind.
"""

from typing import Any

from jumpmq.queues.argument_checks import timeout_of
from jumpmq.queues.arguments import CONSUMER_TIMEOUT
from jumpmq.queues.base import Outcome, Queue
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.deduplicating import DeduplicatingQueue
from jumpmq.queues.delayed import DelayedQueue
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.stream import Stream

__all__ = [
    "CONSUMER_ARGUMENTS",
    "DECLARABLE_TYPES",
    "DEFAULT_QUEUE_TYPE",
    "QUEUE_TYPES",
    "Consumer",
    "Outcome",
    "Queue",
    "make_queue",
    "queue_type",
]

_ALL: tuple[type[Queue], ...] = (ClassicQueue, QuorumQueue, Stream, DelayedQueue, DeduplicatingQueue)
QUEUE_TYPES: dict[str, type[Queue]] = {cls.type: cls for cls in _ALL}
"""Queue types by name, the value of ``x-queue-type``."""

CONSUMER_ARGUMENTS: frozenset[str] = frozenset().union(*(kind.consumer_argument_names for kind in _ALL))
"""Arguments of ``basic.consume`` known to some queue type, and refused by the rest."""

DECLARABLE_TYPES: tuple[str, ...] = tuple(cls.type for cls in _ALL if not cls.is_internal)
"""Queue types available to clients for declaration."""

DEFAULT_QUEUE_TYPE = ClassicQueue.type
"""Queue type of declarations without ``x-queue-type``."""


def queue_type(arguments: dict[str, Any]) -> type[Queue]:
    """Return the kind of queue for validated arguments of a declaration."""
    return QUEUE_TYPES[arguments.get("x-queue-type") or DEFAULT_QUEUE_TYPE]


def make_queue(vhost: str, name: str, *, arguments: dict[str, Any], **declared: Any) -> Queue:
    """Return a declared queue; see :class:`Queue` for the values of a declaration.

    The queue gets only arguments that its kind checks: an argument without a check has no effect. No kind refuses
    ``x-consumer-timeout``, as in RabbitMQ; it has no effect unless it is a number of milliseconds.
    """
    kind = queue_type(arguments)
    checked = {key: value for key, value in arguments.items() if key in kind.argument_checks}
    if timeout_of(arguments.get(CONSUMER_TIMEOUT)) is not None:
        checked[CONSUMER_TIMEOUT] = arguments[CONSUMER_TIMEOUT]
    return kind(vhost, name, arguments=checked, **declared)
