"""Topic exchanges: patterns of words. The table was read off RabbitMQ 3.10.8."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topology.built import Built, keys, message

from jumpmq.topology.exchanges.topic_automaton import TopicAutomaton
from jumpmq.topology.exchanges.topic_trie import TopicTrie

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
    """Patterns with many wildcards match quickly: trying the splits one by one would take ages."""
    built.queue("q")
    built.bind("amq.topic", "q", ".".join(["#", "a"] * 40))
    assert built.reached("amq.topic", ".".join(["a"] * 39 + ["b"] * 80)) == []
    assert built.reached("amq.topic", ".".join(["a", "b"] * 40 + ["a"])) == ["q"]


def test_hundreds_of_hostile_patterns_match_quickly(built: Built) -> None:
    """Hundreds of hostile patterns match quickly: walking all reachable positions takes seconds a message."""
    choices = random.Random(7)
    for number in range(300):
        built.queue(f"q{number}")
        built.bind("amq.topic", f"q{number}", ".".join(choices.choice("a*#") for _ in range(127)))
    keys = [".".join(choices.choice("aab") for _ in range(choices.randrange(60, 127))) for _ in range(300)]
    reached = built.route("amq.topic", *map(message, keys), plain=True)
    assert sum(map(len, reached.queues.values())) > 300


PATTERNS = st.lists(st.sampled_from("ab*#"), max_size=6).map(".".join)
KEYS_OF_FEW = st.lists(st.sampled_from("abc"), max_size=7).map(".".join)


def matches(pattern: list[str], words: list[str]) -> bool:
    """The definition, word for word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[count:]) for count in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


@given(st.lists(PATTERNS, max_size=12, unique=True), st.sets(st.integers(0, 11)), st.lists(KEYS_OF_FEW, max_size=8))
def test_both_ways_of_matching_do_as_defined(patterns: list[str], gone: set[int], keys: list[str]) -> None:
    trie, automaton = TopicTrie(), TopicAutomaton()
    names: dict[int, str] = {}

    def words(text: str) -> list[bytes]:
        return [word.encode() for word in split(text)]

    for pattern in patterns:
        bound = trie.add(words(pattern), Place())  # type: ignore[arg-type]
        automaton.add(words(pattern), bound)
        names[id(bound)] = pattern
    kept = [pattern for number, pattern in enumerate(patterns) if number not in gone]
    for pattern in [pattern for pattern in patterns if pattern not in kept]:
        (place,) = next(bound for found, bound in trie.patterns() if found == words(pattern))
        trie.remove(words(pattern), place)
        automaton.remove(words(pattern))
    for key in keys:
        expected = sorted(pattern for pattern in kept if matches(split(pattern), split(key)))
        assert sorted(names[id(bound)] for bound in automaton.match(words(key))) == expected
        walked = trie.match(words(key))
        assert walked is not None
        assert sorted(names[id(bound)] for bound in walked) == expected


class Place:
    """Somewhere to be bound."""
