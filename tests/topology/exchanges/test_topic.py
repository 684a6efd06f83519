"""Topic exchanges: patterns of words. The table was read off RabbitMQ 3.10.8."""

import pytest
from tests.topology.built import Built, keys, message

KEYS = ["", "a", "a.b", ".", "a.", ".b", "a..b", "a.x.b", "a.x.y.b", "b", "ax", "*", "#", "a.#", "..", "x.a.y"]

MATCHES = {
    "#": KEYS,
    "#.#": KEYS,
    "*": ["a", "b", "ax", "*", "#"],
    "": [""],
    "*x": [],
    "a.*": ["a.b", "a.", "a.#"],
    "a.#": ["a", "a.b", "a.", "a..b", "a.x.b", "a.x.y.b", "a.#"],
    "#.b": ["a.b", ".b", "a..b", "a.x.b", "a.x.y.b", "b"],
    "*.*": ["a.b", ".", "a.", ".b", "a.#"],
    "a..b": ["a..b"],
    "a.#.b": ["a.b", "a..b", "a.x.b", "a.x.y.b"],
    "*.#": KEYS[1:],
    "a.*.#": ["a.b", "a.", "a..b", "a.x.b", "a.x.y.b", "a.#"],
    "#.a.#": ["a", "a.b", "a.", "a..b", "a.x.b", "a.x.y.b", "a.#", "x.a.y"],
}


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("pattern", MATCHES)
def test_what_a_pattern_matches(built: Built, pattern: str, plain: bool) -> None:
    built.queue("q")
    built.bind("amq.topic", "q", pattern)
    routes = built.route("amq.topic", *map(message, KEYS), plain=plain)
    assert keys(routes).get("q", []) == MATCHES[pattern]
    assert [one.routing_key.decode() for one in routes.unroutable] == [k for k in KEYS if k not in MATCHES[pattern]]


def test_a_queue_with_several_matching_patterns_gets_a_message_once(built: Built) -> None:
    built.queue("q")
    for pattern in ("a.#", "#", "*.b"):
        built.bind("amq.topic", "q", pattern)
    assert len(built.route("amq.topic", message("a.b")).queues[built.vhost.queue("q")]) == 1


def test_bindings_take_effect_at_once_on_keys_seen_before(built: Built) -> None:
    built.queue("q")
    built.queue("r")
    built.bind("amq.topic", "q", "a.*.c")
    assert built.reached("amq.topic", "a.b.c") == ["q"]
    built.bind("amq.topic", "r", "a.b.c")
    assert built.reached("amq.topic", "a.b.c") == ["q", "r"]
    built.unbind("amq.topic", "q", "a.*.c")
    assert built.reached("amq.topic", "a.b.c") == ["r"]


def test_removing_a_pattern_leaves_those_it_shares_words_with(built: Built) -> None:
    built.queue("q")
    patterns = ["a", "a.b", "a.b.*", "a.#", "#"]
    for pattern in patterns:
        built.bind("amq.topic", "q", pattern)
    for pattern in ("a.b", "#", "a.#"):
        built.unbind("amq.topic", "q", pattern)
    assert [key for key in ("a", "a.b", "a.b.c", "b") if built.reached("amq.topic", key)] == ["a", "a.b.c"]


def test_many_wildcards_and_words_match_quickly(built: Built) -> None:
    """Trying the splits one by one would take longer than the universe has."""
    built.queue("q")
    built.bind("amq.topic", "q", ".".join(["#", "a"] * 40))
    assert built.reached("amq.topic", ".".join(["a"] * 39 + ["b"] * 80)) == []
    assert built.reached("amq.topic", ".".join(["a", "b"] * 40 + ["a"])) == ["q"]
