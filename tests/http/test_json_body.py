"""Reading JSON bodies in steps gives the result of the standard library."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples

from jumpmq.http.plumbing.json_body import AT_ONCE, MAX_ELEMENTS, PIECE, read_object

SMALL = {"at_once": 60, "piece": 20}
"""Every body counts as large."""


def whole(octets: bytes, at_once: int = AT_ONCE, piece: int = PIECE) -> tuple[dict[str, Any], int]:
    """The object, and the number of steps."""
    steps, count = read_object(octets, at_once, piece), 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.text(max_size=8), st.lists(st.integers()) | st.text(min_size=30) | VALUES, min_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_the_same_as_at_once(found: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    """Every body without an overlong element is read as by ``json.loads``."""
    octets = json.dumps(found, ensure_ascii=ascii_only, indent=indent).encode()
    longest = max(len(json.dumps(value, indent=indent)) for value in found.values())
    if len(octets) > 400 and longest < 400:
        assert whole(octets, at_once=400, piece=20)[0] == found


def test_elements_and_pieces_are_steps() -> None:
    found = {"list": [{"n": number} for number in range(50)], "text": 'ab\\\n"é😀' * 50, "none": None}
    for ascii_only in (True, False):
        read, steps = whole(json.dumps(found, ensure_ascii=ascii_only).encode(), **SMALL)
        assert read == found
        assert steps > 20


NONE = """
{"a": [1, 2}
{"a": "
{"a": "\\u12"}
{"a": "\\ud800"}
{"a": NaN}
{"a" 1}
{"a": 1} 2
{1: 2}
{"a": [1,]}
[1]
"""


@pytest.mark.parametrize(
    "text", [*NONE.split("\n")[1:-1], f'{{"a": {"1" * 100}}}', f'{{"a": [{"[" * 80 + "]" * 80}]}}']
)
def test_what_is_no_object_is_refused(text: str) -> None:
    padded = text.replace("{", "{" + " " * 70, 1) if "{" in text else text + " " * 70
    with pytest.raises(ValueError):
        whole(padded.encode(), **SMALL)


def test_elements_are_counted() -> None:
    octets = b'{"a": [' + b"1," * MAX_ELEMENTS + b"1]}"
    with pytest.raises(ValueError, match="more than 250000 elements"):
        whole(octets)


def test_blanks_are_counted() -> None:
    with pytest.raises(ValueError, match="too many blanks from character 5"):
        whole(b'{"a":' + b" " * AT_ONCE + b"1}")


def test_no_step_reads_much() -> None:
    octets = b'{"a": [' + b"[]," * 100_000 + b"[]]}"
    assert sum(1 for _ in read_object(octets)) >= 100


def test_many_members_are_read_in_steps_and_more_are_refused() -> None:
    many = {str(number): number for number in range(100_000)}
    found, steps = whole(json.dumps(many).encode())
    assert found == many
    assert steps >= 99
    with pytest.raises(ValueError, match="more than 250000 members"):
        whole(json.dumps(dict.fromkeys(range(250_001))).encode())
