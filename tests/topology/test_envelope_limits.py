"""Limits of the number of routing keys in CC and BCC."""

import pika
import pytest

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.topology.envelope import MAX_KEYS, MAX_OCTETS, Envelope


def message(**headers: list[str]) -> Message:
    properties = b"".join(pika.BasicProperties(headers=headers).encode())
    return Message("", b"first", properties, b"", False, 0.0)


def test_as_many_keys_as_allowed_are_routed() -> None:
    envelope = Envelope.opened(message(CC=["k"] * (MAX_KEYS - 1), BCC=["b"]))
    assert envelope.keys == [b"first", *[b"k"] * (MAX_KEYS - 1), b"b"]


@pytest.mark.parametrize(
    "headers",
    [
        {"CC": ["k"] * (MAX_KEYS + 1)},
        {"BCC": ["k"] * (MAX_KEYS + 1)},
        {"CC": ["k"] * MAX_KEYS, "BCC": ["b"]},
        {"CC": ["k" * 255] * (MAX_OCTETS // 255 + 1)},
    ],
)
def test_more_are_refused(headers: dict[str, list[str]]) -> None:
    with pytest.raises(PreconditionFailed, match=f"more than {MAX_KEYS} routing keys or {MAX_OCTETS} octets"):
        Envelope.opened(message(**headers))
