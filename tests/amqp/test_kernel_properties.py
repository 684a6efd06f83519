"""Property lists decoded into columns, and hashed: the kernel agrees with its reference implementation."""

import itertools
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amqp.field_tables import FIELDS
from tests.amqp.streams import HEADERS, MALFORMED_PROPERTIES, PROPERTIES, damaged
from tests.generating import examples

from jumpmq.amqp import _reference as reference
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.hashing import header_key

kernel: ModuleType = pytest.importorskip("jumpmq.amqp._kernel", reason="the compiled kernel is not built")
IMPLEMENTATIONS = pytest.mark.parametrize("module", [kernel, reference], ids=["kernel", "reference"])

ALL = 0xFFFC
WORDS = st.none() | st.text(max_size=8) | st.sampled_from(["é" * 40, "\udcff", "a\udc80b", "x" * 255])
OCTET = st.none() | st.integers(0, 255)
SECONDS = st.none() | st.integers(0, 1 << 40) | st.sampled_from([253402300799, 253402300800, (1 << 64) - 1])
WHOLE = st.builds(
    lambda words, headers, octets, seconds: Properties(
        *(*words[:2], headers, *octets, *words[2:6], seconds, *words[6:])
    ).encode(),
    st.lists(WORDS, min_size=10, max_size=10),
    st.none() | FIELDS,
    st.lists(OCTET, min_size=2, max_size=2),
    SECONDS,
)
LISTS = st.lists(
    WHOLE | st.sampled_from(PROPERTIES + MALFORMED_PROPERTIES) | damaged(st.sampled_from(PROPERTIES)), max_size=12
)


def column(values: list[bytes]) -> tuple[bytes, bytes]:
    return array("i", itertools.accumulate(map(len, values), initial=0)).tobytes(), b"".join(values)


def with_headers(*headers: Field) -> bytes:
    return Properties(headers=list(headers)).encode()


@settings(max_examples=examples(300))
@given(LISTS, st.integers(0, 3), st.integers(0, ALL).map(lambda flags: flags & ALL) | st.just(ALL))
def test_decode_properties(values: list[bytes], first: int, wanted: int) -> None:
    first = min(first, len(values))
    arguments = (*column(values), first, len(values) - first, wanted)
    assert kernel.decode_properties(*arguments) == reference.decode_properties(*arguments)


@IMPLEMENTATIONS
def test_headers_are_text(module: ModuleType) -> None:
    kinds = [
        Field("S", "S", "é"), Field("x", "x", b"\xff"), Field("t", "t", True), Field("f", "t", False),
        Field("b", "b", -128), Field("B", "B", 255), Field("s", "s", -32768), Field("u", "u", 65535),
        Field("I", "I", -(1 << 31)), Field("i", "i", (1 << 32) - 1), Field("l", "l", -(1 << 63)),
        Field("L", "L", (1 << 63) - 1), Field("T", "T", 0), Field("d", "d", 1.5), Field("D", "D", (2, 314)),
        Field("V", "V", None), Field("A", "A", [("I", 1), ("S", "é")]), Field("F", "F", [Field("n", "t", True)]),
    ]  # fmt: skip
    _, columns = module.decode_properties(*column([with_headers(*kinds)]), 0, 1, 0x2000)
    offsets, name_ends, names, present, ends, octets = columns[2]
    values = [octets[start:stop].decode() for start, stop in itertools.pairwise(array("i", ends))]
    assert (list(array("i", offsets)), names.decode()) == ([0, 18], "SxtfbBsuIilLTdDVAF")
    assert len(array("i", name_ends)) == 19
    assert values == [
        "é", "/w==", "true", "false", "-128", "255", "-32768", "65535", "-2147483648", "4294967295",
        "-9223372036854775808", "9223372036854775807", "1970-01-01T00:00:00+00:00", "1.5", "3.14", "",
        '[1, "é"]', '{"n": true}',
    ]  # fmt: skip
    assert present == bytes([0b11111111, 0b01111111, 0b11])


@IMPLEMENTATIONS
def test_a_name_that_is_there_twice_has_its_later_value(module: ModuleType) -> None:
    twice = with_headers(Field("a", "I", 1), Field("b", "I", 2), Field("a", "S", "3"))
    many = with_headers(*(Field(f"n{place % 40}", "I", place) for place in range(50)))
    _, columns = module.decode_properties(*column([twice, many]), 0, 2, 0x2000)
    assert list(array("i", columns[2][0])) == [0, 2, 42]
    assert columns[2][5].startswith(b"32")


@IMPLEMENTATIONS
def test_a_column_that_lies_about_its_octets_is_refused(module: ModuleType) -> None:
    for ends, octets, rows in (([0, 9], b"ab", 1), ([1, 0], b"ab", 1), ([-1, 1], b"ab", 1), ([0], b"", 1)):
        with pytest.raises(ValueError, match="Arrow column"):
            module.decode_properties(array("i", ends).tobytes(), octets, 0, rows, ALL)


@IMPLEMENTATIONS
def test_no_rows(module: ModuleType) -> None:
    assert module.decode_properties(b"", b"", 0, 0, 0x1000) == (None, [None] * 14)


# --- hashing ---


def messages(module: ModuleType, values: list[bytes]) -> list[Any]:
    return [module.Message("e", b"k", value, b"") for value in values]


@IMPLEMENTATIONS
def test_routing_keys(module: ModuleType) -> None:
    published = [module.Message("e", key, b"\0\0", b"") for key in (b"a", b"", b"\xff", b"a")]
    assert module.routing_keys(published) == [b"a", b"", b"\xff", b"a"]


@settings(max_examples=examples(300))
@given(LISTS, st.sampled_from([2, 5, 8, 9]), st.sampled_from([b"", b"a", b"b", "é".encode()]))
def test_hash_keys(values: list[bytes], place: int, name: bytes) -> None:
    found = [module.hash_keys(messages(module, values), place, name, 7) for module in (kernel, reference)]
    assert found[0] == found[1]
    assert [type(key) for key in found[0][0]] == [type(key) for key in found[1][0]]


@IMPLEMENTATIONS
def test_the_key_of_each_type_of_header(module: ModuleType) -> None:
    fields = [
        ("S", "é"), ("x", b"\xff"), ("t", True), ("b", -1), ("B", 255), ("s", -1), ("u", 65535), ("I", -1),
        ("i", (1 << 32) - 1), ("l", -1), ("L", -1), ("T", 5), ("d", 1.5), ("f", 1.5), ("D", (2, 314)),
        ("A", [("I", 1)]), ("F", [Field("n", "t", True)]),
    ]  # fmt: skip
    values = [with_headers(Field("a", "I", 0), Field("h", "V", None), Field("h", *one)) for one in fields]
    keys, missing = module.hash_keys(messages(module, [*values, HEADERS, b"\0\0"]), 2, b"h", 99)
    assert keys == [*(header_key(*one) for one in fields), 99, 99]
    assert missing == 2


@given(LISTS)
def test_any_copies(values: list[bytes]) -> None:
    copied = [with_headers(Field("CC", "A", [("S", "q")])), with_headers(Field("x", "I", 1), Field("BCC", "A", []))]
    for module in (kernel, reference):
        assert all(module.any_copies(messages(module, [*values, one])) for one in copied)
    assert kernel.any_copies(messages(kernel, values)) == reference.any_copies(messages(reference, values))
