"""Headers matched by the arguments of a binding."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.wire import Basic, WireChannel

Table = dict[str, Any]

MESSAGES: dict[str, Table | None] = {
    "none": None,
    "empty": {},
    "red": {"colour": "red"},
    "blue": {"colour": "blue"},
    "big red": {"colour": "red", "size": 9},
    "small red": {"colour": "red", "size": 1},
    "big": {"size": 9},
    "big as text": {"size": "9"},
    "urgent": {"x-urgent": True, "colour": "red"},
    "void": {"colour": None},
}

BINDINGS: list[tuple[Table, list[str]]] = [
    ({}, list(MESSAGES)),
    ({"x-match": "all"}, list(MESSAGES)),
    ({"x-match": "any"}, []),
    ({"colour": "red"}, ["red", "big red", "small red", "urgent"]),
    ({"x-match": "all", "colour": "red", "size": 9}, ["big red"]),
    ({"x-match": "any", "colour": "red", "size": 9}, ["red", "big red", "small red", "big", "urgent"]),
    ({"x-match": "all", "colour": None}, ["red", "blue", "big red", "small red", "urgent", "void"]),
    ({"x-match": "all", "x-urgent": False}, list(MESSAGES)),
    ({"x-match": "all-with-x", "x-urgent": True}, ["urgent"]),
    ({"x-match": "any-with-x", "x-urgent": True, "size": 1}, ["small red", "urgent"]),
    ({"x-match": "any", "x-urgent": True}, []),
]


@pytest.mark.parametrize(("arguments", "matched"), BINDINGS, ids=lambda value: str(value) if value else "-")
def test_binding(
    channel: WireChannel, queue: str, unique: Callable[[str], str], arguments: Table, matched: list[str]
) -> None:
    exchange = channel.exchange(unique("headers"), "headers")
    channel.bind(queue, exchange, arguments=arguments)
    for name, headers in MESSAGES.items():
        channel.publish(exchange, "ignored", name.encode(), Basic.Properties(headers=headers))
    assert [body.decode() for body in channel.bodies(queue)] == matched
