"""A message while it is routed through exchanges: routing keys and properties, parsed once."""

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties

_CC, _BCC = b"\x02CC", b"\x03BCC"
"""First octets of the headers CC and BCC. Most messages have neither, and need no parsing."""

MAX_KEYS, MAX_OCTETS = 1000, 32 << 10
"""Maximum number and octets of routing keys in CC and BCC: a message is routed by all of them at once, at 4 µs and more
per word if patterns are matched."""


class Envelope:
    """A message with the parts used by exchanges.

    Attributes:
        message: the message itself.
        keys: the routing key, then the keys of the headers CC and BCC.
        stripped: properties without the BCC header; None for a message without it.
    """

    __slots__ = ("_properties", "keys", "message", "stripped")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.keys = [message.routing_key]
        self.stripped: bytes | None = None
        self._properties: Properties | None = None

    @classmethod
    def opened(cls, message: Message) -> "Envelope":
        """Read the CC and BCC headers; the message is not changed.

        Raises:
            PreconditionFailed: a header is not an array, or has too many keys.
        """
        envelope = cls(message)
        octets = message.properties
        if _CC not in octets and _BCC not in octets:
            return envelope
        headers = envelope.headers
        for name in ("CC", "BCC"):
            for field in headers:
                if field.name == name:
                    envelope.keys += _keys(field)
                    break
        if len(envelope.keys) > 1 + MAX_KEYS or sum(map(len, envelope.keys)) > MAX_OCTETS + len(message.routing_key):
            raise PreconditionFailed(
                f"invalid message: CC and BCC hold more than {MAX_KEYS} routing keys or {MAX_OCTETS} octets of them"
            )
        if any(field.name == "BCC" for field in headers):
            kept = Properties.parse(octets)
            kept.headers = [field for field in headers if field.name != "BCC"]
            envelope.stripped, envelope._properties = kept.encode(), kept
        return envelope

    @property
    def properties(self) -> Properties:
        """The message's properties, parsed at first use."""
        if self._properties is None:
            self._properties = Properties.parse(self.message.properties)
        return self._properties

    @property
    def headers(self) -> list[Field]:
        """Return the message's headers, possibly none."""
        return self.properties.headers or []


def _keys(field: Field) -> list[bytes]:
    """Return the strings of a CC or BCC header; other values are ignored, as by RabbitMQ."""
    if field.type != "A":
        text = f'{{unacceptable_type_in_header,"{field.name}",{erlang.TYPE_NAMES[field.type]}}}'
        raise PreconditionFailed(f"invalid message: {text}")
    return [
        value.encode(errors="surrogateescape") if isinstance(value, str) else value
        for kind, value in field.value
        if kind == "S"
    ]
