"""A message as JSON, by RabbitMQ's names."""

from __future__ import annotations

import base64
from typing import Any

from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties


def shown_message(message: Message, body: bytes, encoding: str, truncate: int | None) -> dict[str, Any]:
    """Return a message as JSON.

    Args:
        body: the message's body, given because the message itself may have been paged out.
        encoding: ``auto`` for text if the payload is UTF-8; otherwise the payload is base64.
        truncate: maximum octets of the payload; None for all.
    """
    text, encoding = _encoded(body[:truncate], encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key.decode("utf-8", "replace"),
        "properties": _properties(message),
        "payload": text,
        "payload_encoding": encoding,
    }


def _encoded(payload: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return payload.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode(), "base64"


def _properties(message: Message) -> dict[str, Any] | list[Any]:
    """Return the message's properties; an empty list if there are none, as in RabbitMQ."""
    parsed = Properties.parse(message.properties)
    found = {name: getattr(parsed, name) for name in Properties.__slots__}
    found["headers"] = to_python(parsed.headers) if parsed.headers is not None else None
    return {name: value for name, value in found.items() if value is not None} or []
