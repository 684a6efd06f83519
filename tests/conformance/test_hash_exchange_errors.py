"""Refused operations of a hash exchange, with their reasons."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire import ChannelClosed, WireChannel

pytestmark = pytest.mark.usefixtures("bystander")

Name = Callable[[str], str]

WEIGHTS = {
    "heavy": 'The binding key must be an integer: <<"heavy">>',
    "x": 'The binding key must be an integer: <<"x">>',
    "": "The binding key must be an integer: <<>>",
    "1.5": 'The binding key must be an integer: <<"1.5">>',
    "0": "The binding key must be greater than 0",
    "-1": "The binding key must be greater than 0",
}

ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "header and property": (
        {"hash-header": "device", "hash-property": "message_id"},
        "hash-header and hash-property are mutually exclusive",
    ),
    "a property that cannot be hashed": ({"hash-property": "app_id"}, "Unsupported property: app_id"),
    "a property that does not exist": ({"hash-property": "colour"}, "Unsupported property: colour"),
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_weights(channel: WireChannel, queue: str, unique: Name, weight: str) -> None:
    exchange = channel.exchange(unique("ring"), "x-consistent-hash")
    with pytest.raises(ChannelClosed) as closed:
        channel.bind(queue, exchange, weight)
    assert (closed.value.code, closed.value.text) == (406, f"PRECONDITION_FAILED - {WEIGHTS[weight]}")


def test_the_largest_weight(channel: WireChannel, queue: str, unique: Name) -> None:
    exchange = channel.exchange(unique("ring"), "x-consistent-hash")
    channel.bind(queue, exchange, "10000")


@pytest.mark.parametrize(("arguments", "reason"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments(channel: WireChannel, unique: Name, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ChannelClosed) as closed:
        channel.exchange(unique("ring"), "x-consistent-hash", arguments=arguments)
    assert (closed.value.code, closed.value.text) == (406, f"PRECONDITION_FAILED - {reason}")


@pytest.mark.parametrize("broker", ["jumpmq"], indirect=True)
@pytest.mark.parametrize("weight", ["10001", "99999999999999999999"])
def test_a_weight_above_the_limit(channel: WireChannel, queue: str, unique: Name, weight: str) -> None:
    """RabbitMQ has no limit, and builds a ring of any size until it runs out of memory."""
    exchange = channel.exchange(unique("ring"), "x-consistent-hash")
    with pytest.raises(ChannelClosed) as closed:
        channel.bind(queue, exchange, weight)
    assert closed.value.code == 406
    assert "10000" in closed.value.text.replace(",", "")
