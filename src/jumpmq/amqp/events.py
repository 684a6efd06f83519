"""What a connection's bytes say, in the order in which they say it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jumpmq.amqp.messages import Message


@dataclass(slots=True)
class Publish:
    """A run of messages that one channel published to one exchange.

    Attributes:
        channel: channel number.
        exchange: name of the exchange.
        mandatory, immediate: the publish's bits, the same for the whole run.
        flags: the property flags of all messages, or-ed: what no message of the run has, it lacks.
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
    """``basic.ack``: delivery tags, each for itself, or one tag for all up to it (``multiple``)."""

    channel: int
    tags: list[int]
    multiple: bool


@dataclass(slots=True)
class RawFrame:
    """Any other frame, its payload not yet read: octets of its own, or, in a body frame, a view of what was scanned."""

    type: int
    channel: int
    payload: Any
