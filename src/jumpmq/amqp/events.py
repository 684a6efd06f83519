"""Events of a connection, in the order of the parsed octets."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumpmq.amqp._kernel import Message  # of messages.py, which imports this file


@dataclass(slots=True)
class Publish:
    """A run of messages from a channel to a single exchange.

    Attributes:
        channel: channel number.
        exchange: name of the exchange.
        mandatory, immediate: the publish's bits, the same for the whole run.
        flags: the property flags of all messages, or-ed: a flag not set here is set in no message.
        size: octets of all bodies.
        messages: in published order.
    """

    channel: int
    exchange: str
    mandatory: bool
    immediate: bool
    flags: int
    size: int
    messages: "list[Message]"


@dataclass(slots=True)
class Ack:
    """``basic.ack``: single delivery tags, or with ``multiple`` one tag for all deliveries up to the tag."""

    channel: int
    tags: list[int]
    multiple: bool


@dataclass(slots=True)
class RawFrame:
    """A frame with unparsed payload: a copy of the octets or, in a body frame, a view of the scanned buffer."""

    type: int
    channel: int
    payload: Any
