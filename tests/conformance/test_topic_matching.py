"""Routing keys matched by a topic pattern."""

from collections.abc import Callable

import pytest
from tests.wire import Queue, WireChannel

KEYS = [
    "", "a", "b", "ab", "A", "a.b", "a.c", "b.b", "a.b.c", "a.x.c", "a.b.c.d",
    "a..c", ".a", "a.", "..", "#", "*", "a.#",
]  # fmt: skip

PATTERNS = {
    "": [""],
    "#": KEYS,
    "*": ["a", "b", "ab", "A", "#", "*"],
    "a": ["a"],
    "a.b": ["a.b"],
    "a.*": ["a.b", "a.c", "a.", "a.#"],
    "*.b": ["a.b", "b.b"],
    "a.#": ["a", "a.b", "a.c", "a.b.c", "a.x.c", "a.b.c.d", "a..c", "a.", "a.#"],
    "#.c": ["a.c", "a.b.c", "a.x.c", "a..c"],
    "a.#.c": ["a.c", "a.b.c", "a.x.c", "a..c"],
    "a.*.c": ["a.b.c", "a.x.c", "a..c"],
    "*.*": ["a.b", "a.c", "b.b", ".a", "a.", "a.#"],
    "#.#": KEYS,
    "*.#": [key for key in KEYS if key],
    "#.*": [key for key in KEYS if key],
    "*.#.*": [key for key in KEYS if "." in key],
    "#.b.#": ["b", "a.b", "b.b", "a.b.c", "a.b.c.d"],
    "..": [".."],
    "a.b#": [],
    "a*": [],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern(channel: WireChannel, queue: str, unique: Callable[[str], str], pattern: str) -> None:
    exchange = channel.exchange(unique("topic"), "topic")
    channel.bind(queue, exchange, pattern)
    for key in KEYS:
        channel.publish(exchange, key, key.encode())
    assert [body.decode() for body in channel.bodies(queue)] == PATTERNS[pattern]


def test_patterns_can_be_unbound_one_by_one(channel: WireChannel, queue: str, unique: Callable[[str], str]) -> None:
    exchange = channel.exchange(unique("topic"), "topic")
    for pattern in ("a.#", "a.*"):
        channel.bind(queue, exchange, pattern)
    channel.call(Queue.Unbind(queue=queue, exchange=exchange, routing_key="a.#"))
    for key in KEYS:
        channel.publish(exchange, key, key.encode())
    assert [body.decode() for body in channel.bodies(queue)] == PATTERNS["a.*"]
