"""Choice of a queue's ready messages by its arguments: in order, by priority, or by slot."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.priorities import PrioritizedMessages
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.slots import DEFAULT_KEY, SlottedMessages


class Around(NamedTuple):
    """First arguments of all ready messages; see :class:`~jumpmq.queues.ready.ReadyMessages`."""

    reader: BatchReader | None
    prepare: Callable[[list[Message]], None]
    account: MemoryAccount
    arrived: Callable[[], None]


def slotted(arguments: Mapping[str, Any], around: Around) -> SlottedMessages | None:
    """Return ready messages by slot; None for a queue without slots."""
    if "x-slots" not in arguments:
        return None
    key, limit = arguments.get("x-slot-key", DEFAULT_KEY), arguments.get("x-in-flight-per-slot", 0)
    return SlottedMessages(*around, arguments["x-slots"], key, limit)


def unslotted(arguments: Mapping[str, Any], around: Around) -> ReadyMessages | PrioritizedMessages:
    """Return the ready messages of a queue without slots."""
    highest = arguments.get("x-max-priority", 0)
    return PrioritizedMessages(*around, highest) if highest else ReadyMessages(*around)
