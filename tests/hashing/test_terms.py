"""Hashed terms of a message: headers of every AMQP type, properties, and keys of the modulus exchange."""

from typing import Any

import pyarrow as pa
import pytest
from tests.hashing.conftest import Vectors

from jumpmq.hashing import HashRing, jump, phash2, terms


def value_of(type_: str, value: Any) -> Any:
    """The value of a golden header as read from a field table."""
    match type_:
        case "S" | "x":
            return bytes.fromhex(value)
        case "D":
            return tuple(value)
        case "A":
            return [(inner, value_of(inner, element)) for inner, element in value]
        case "F":
            return [(name, inner, value_of(inner, element)) for name, (inner, element) in value.items()]
    return value


def key_of(line: dict[str, Any]) -> bytes | int:
    if line["type"] == "missing":
        return terms.MISSING
    return terms.header_key(line["type"], value_of(line["type"], line["value"]))


def bucket(key: bytes | int, buckets: int) -> int:
    return jump(key if isinstance(key, int) else phash2(key), buckets)


def test_every_golden_header(vectors: Vectors) -> None:
    lines = vectors("headers")
    assert len(lines) == 100
    for line in lines:
        key = key_of(line)
        assert {n: bucket(key, int(n)) for n in line["consistent_hash"]} == line["consistent_hash"], line


def test_every_golden_header_through_a_ring(vectors: Vectors) -> None:
    ring = HashRing()
    for i in range(100):
        ring.add(str(i), 1)
    for line in vectors("headers"):
        assert ring.route(key_of(line)) == str(line["consistent_hash"]["100"]), line


def test_text_and_its_octets_are_the_same_header() -> None:
    assert terms.header_key("S", "Zürich") == terms.header_key("S", "Zürich".encode())


def test_a_void_header_counts_as_missing() -> None:
    assert terms.header_key("V", None) == terms.MISSING


def test_an_integer_header_of_any_width_is_its_own_hash() -> None:
    assert {terms.header_key(type_, 42) for type_ in "bBsuIilL"} == {42}


def test_a_timestamp_is_milliseconds_as_a_header_and_digits_as_a_property() -> None:
    assert terms.header_key("T", 1_700_000_000) == 1_700_000_000_000
    assert terms.timestamp_key(1_700_000_000) == b"1700000000"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        # Results of `erlang:phash2({longstr, <<"x">>})` and so on, of OTP 25.
        (("S", "x"), 14442427),
        (("x", b"x"), 59194669),
        (("b", -5), 100886737),
        (("B", 200), 88973546),
        (("s", -3), 43037060),
        (("u", 60000), 88181421),
        (("i", 4000000000), 106834589),
        (("l", 99), 116875544),
        (("L", 99), 116875544),
        (("T", 1700000000), 59280699),
        (("d", 0.5), 132715388),
        (("f", 0.25), 9720941),
        (("D", (2, 314)), 113508173),
        (("t", True), 32030443),
        (("V", None), 27077197),
        (("A", [("I", 1), ("S", "x")]), 21074397),
        (("F", [("n", "t", False)]), 49447868),
        (("F", []), 80606520),
    ],
)
def test_an_array_is_hashed_by_its_first_element_and_its_type(first: tuple[str, object], expected: int) -> None:
    assert terms.header_key("A", [first, ("I", 1)]) == terms.header_key("A", [first]) == expected


def test_an_unknown_field_type_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no AMQP field type 'q'"):
        terms.header_key("q", 1)


def test_modulus_takes_all_routing_keys_in_order() -> None:
    assert terms.modulus([b"a", b"b"], 2**27) == 3094894  # erlang:phash2([<<"a">>, <<"b">>])
    assert terms.modulus([b"b", b"a"], 2**27) != 3094894
    assert terms.modulus([], 2**27) == 113427502


def test_modulus_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a modulus is 1 or more, not 0"):
        terms.modulus([b"a"], 0)


def test_modulus_of_an_arrow_array_is_that_of_each_key_alone(vectors: Vectors) -> None:
    lines = vectors("routing_keys")
    keys = pa.array([line["routing_key"] for line in lines], pa.string())
    for n in lines[0]["modulus_hash"]:
        assert terms.modulus_array(keys, int(n)).to_pylist() == [line["modulus_hash"][n] for line in lines]
