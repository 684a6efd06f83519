"""The deduplication exchange, ``x-message-deduplication`` of noxdafox's plugin: a fanout that passes each message once.

The header ``x-deduplication-header`` identifies a message; a message without the header always passes. The exchange's
queue (:mod:`jumpmq.queues.deduplicating`) remembers messages: as many as ``x-cache-size`` says, for ``x-cache-ttl``
milliseconds.
"""

from typing import Any

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import INTEGER_TYPES
from jumpmq.amqp.messages import Message
from jumpmq.queues.deduplication import is_identified
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.fanout import FanoutExchange
from jumpmq.topology.exchanges.holding import HoldingExchange

SIZE, TTL, PERSISTENCE = "x-cache-size", "x-cache-ttl", "x-cache-persistence"

MOST = (1 << 63) - 1
"""Maximum number of entries of a cache, and of milliseconds."""


class DeduplicationExchange(HoldingExchange, FanoutExchange):
    """A fanout exchange, dropping messages already seen."""

    type = "x-message-deduplication"
    queue_type = "deduplicating"
    queue_prefix = "amq.deduplication."
    compared_arguments = (*FanoutExchange.compared_arguments, SIZE, TTL, PERSISTENCE)
    kept_on_replacement = FanoutExchange.kept_on_replacement | {"held_queue"}

    def __init__(self, definition: ExchangeDefinition) -> None:
        super().__init__(definition)
        size = _positive(definition, SIZE)
        if size is None:
            raise PreconditionFailed(f"Missing or invalid argument, '{SIZE}' must be an integer greater than 0")
        self._cache: dict[str, Any] = {SIZE: size}
        if (ttl := _positive(definition, TTL)) is not None:
            self._cache[TTL] = ttl
        persistence = definition.arguments.get(PERSISTENCE)
        if persistence is not None:
            if persistence.type != "S" or persistence.value not in ("disk", "memory"):
                raise PreconditionFailed(f"Invalid argument, '{PERSISTENCE}' must be either 'disk' or 'memory'")
            self._cache[PERSISTENCE] = persistence.value

    def holds(self, message: Message) -> bool:
        return is_identified(message)

    @property
    def queue_arguments(self) -> dict[str, Any]:
        return super().queue_arguments | self._cache


def _positive(definition: ExchangeDefinition, name: str) -> int | None:
    """Return an integer argument, which may be a text.

    Raises:
        PreconditionFailed: the argument is not an integer, or less than 1.
    """
    field = definition.arguments.get(name)
    if field is None:
        return None
    value = field.value if field.type in INTEGER_TYPES else None
    if field.type == "S" and str(field.value).isascii() and str(field.value).isdigit() and len(field.value) < 20:
        value = int(field.value)
    if value is None or not 0 < value <= MOST:
        problem = "Missing or invalid argument" if name == SIZE else "Invalid argument"
        raise PreconditionFailed(f"{problem}, '{name}' must be an integer greater than 0")
    return int(value)
