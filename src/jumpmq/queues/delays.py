"""The header ``x-delay``: the delay of a message by an exchange of type ``x-delayed-message``.

Source: ``rabbit_delayed_message_utils`` of RabbitMQ's delayed message plugin.
"""

from functools import lru_cache

from jumpmq.amqp.fields import INTEGER_TYPES, Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import headers_of

HEADER = "x-delay"
_NAMED = b"\x07x-delay"
"""The header's encoded name in a field table."""

LONGEST = (1 << 32) - 1
"""Maximum delay in milliseconds."""

_CACHED = 512
"""Maximum octets of properties for which a delay is cached: neighbouring messages often have equal properties."""


def delay_of(message: Message) -> int:
    """Return the delay of a message in milliseconds, 1 to ``LONGEST``; 0 without delay.

    Numbers of all types count, without their fraction, and numbers as text. Other values, and negative or too large
    numbers, mean no delay.
    """
    octets = message.properties
    if _NAMED not in octets:
        return 0
    return _remembered(octets) if len(octets) <= _CACHED else _read(octets)


def _read(octets: bytes) -> int:
    found = next((field for field in headers_of(octets) if field.name == HEADER), None)
    delay = None if found is None else _milliseconds(found)
    return delay if delay is not None and 0 < delay <= LONGEST else 0


_remembered = lru_cache(8192)(_read)


def _milliseconds(field: Field) -> int | None:
    try:
        match field.type:
            case kind if kind in INTEGER_TYPES or kind in "df":
                return int(field.value)
            case "D":
                scale, value = field.value
                return int(value) // int(10**scale)
            case "S" if str(field.value).isascii() and len(field.value) <= 20:
                return int(field.value)
    except (ValueError, OverflowError):  # no number, infinite
        pass
    return None


def negated(headers: list[Field]) -> list[Field]:
    """Return headers with the delay negated: the message is not delayed again, and consumers see the delay."""
    found = []
    for field in headers:
        if field.name == HEADER and (delay := _milliseconds(field)) is not None:
            field = Field(HEADER, "I" if delay < 1 << 31 else "l", -delay)
        found.append(field)
    return found
