"""Field tables: the octets of the errata page "Field types", with the type of every value."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.field_tables import FIELDS, nested, table

from jumpmq.amqp.errors import AMQPError, MalformedFrame, MethodSyntaxError
from jumpmq.amqp.fields import (
    MAX_DEPTH,
    Field,
    read_short_octets,
    read_short_string,
    read_table,
    to_python,
    write_fields,
    write_short_string,
    write_table,
)

EVERY_TYPE: list[tuple[str, bytes, Any]] = [
    ("t", b"\x01", True),
    ("t", b"\x00", False),
    ("b", b"\xff", -1),
    ("B", b"\xff", 255),
    ("s", b"\x80\x00", -32768),
    ("u", b"\xff\xff", 65535),
    ("I", b"\xff\xff\xff\xfe", -2),
    ("i", b"\xff\xff\xff\xfe", 4294967294),
    ("l", b"\x80\x00\x00\x00\x00\x00\x00\x00", -(1 << 63)),
    ("f", b"\x3f\x00\x00\x00", 0.5),
    ("d", b"\x3f\xb9\x99\x99\x99\x99\x99\x9a", 0.1),
    ("D", b"\x02\x00\x00\x01\x3a", (2, 314)),
    ("S", b"\x00\x00\x00\x05gr\xc3\xbcn", "grün"),
    ("S", b"\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
    ("x", b"\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
    ("T", b"\x00\x00\x00\x00\x65\x53\xf1\x00", 1_700_000_000),
    ("V", b"", None),
    ("A", b"\x00\x00\x00\x04B\x07t\x01", [("B", 7), ("t", True)]),
    ("F", b"\x00\x00\x00\x04\x01aB\x07", [Field("a", "B", 7)]),
]


@pytest.mark.parametrize(("kind", "octets", "value"), EVERY_TYPE, ids=lambda value: repr(value)[:20])
def test_every_type_is_read_and_written(kind: str, octets: bytes, value: Any) -> None:
    whole = table(b"\x04name" + kind.encode() + octets)
    assert read_table(whole) == ([Field("name", kind, value)], len(whole))
    assert write_fields([Field("name", kind, value)]) == whole


def test_both_octets_of_a_long_are_read_as_one_type() -> None:
    longs = table(b"\x01aL" + b"\xff" * 8 + b"\x01bl" + b"\0" * 8)
    assert read_table(longs)[0] == [Field("a", "l", -1), Field("b", "l", 0)]


def test_a_table_is_read_where_it_lies_and_keeps_order_and_repetition() -> None:
    octets = b"before" + table(b"\x01bB\x01\x01aB\x02\x01bB\x03") + b"behind"
    fields, end = read_table(octets, 6)
    assert fields == [Field("b", "B", 1), Field("a", "B", 2), Field("b", "B", 3)]
    assert octets[end:] == b"behind"


@given(FIELDS)
def test_what_was_written_is_read_back(fields: list[Field]) -> None:
    octets = write_fields(fields)
    assert read_table(octets) == (fields, len(octets))


@given(FIELDS, st.data())
def test_a_table_cut_short_is_refused(fields: list[Field], data: st.DataObject) -> None:
    octets = write_fields(fields)
    with pytest.raises(MalformedFrame):
        read_table(octets[: data.draw(st.integers(0, len(octets) - 1))])


@given(st.binary(max_size=60))
def test_any_octets_are_a_table_or_a_protocol_error(octets: bytes) -> None:
    try:
        fields, end = read_table(table(octets))
    except AMQPError as error:
        assert error.code in (501, 502)
    else:
        assert end == 4 + len(octets)
        assert len(read_table(write_fields(fields))[0]) == len(fields)
        to_python(fields)


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x01",
        table(b"\x05ab"),
        table(b"\x01a"),
        table(b"\x01aI\x00\x00\x00"),
        table(b"\x01aS\x00\x00\x00\x05abc"),
        table(b"\x01aF\x00\x00\x00\x05\x01bV"),
        table(b"\x01aA\x00\x00\x00\x02B"),
        table(b"\x02\xff\xfeV"),
    ],
)
def test_what_runs_past_its_end_is_a_frame_error(octets: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_table(octets)


def test_a_value_may_not_reach_beyond_its_table_even_if_octets_follow() -> None:
    with pytest.raises(MalformedFrame):
        read_table(table(b"\x01aI\x00\x00") + b"\x00\x00")


@pytest.mark.parametrize("octets", [table(b"\x01az"), table(b"\x01aA\x00\x00\x00\x01?")])
def test_an_unknown_type_is_a_syntax_error(octets: bytes) -> None:
    with pytest.raises(MethodSyntaxError, match="unknown field type"):
        read_table(octets)


def test_nesting_has_a_limit() -> None:
    read_table(nested(MAX_DEPTH))
    with pytest.raises(MethodSyntaxError, match="nested"):
        read_table(nested(MAX_DEPTH + 1))
    with pytest.raises(MethodSyntaxError, match="nested"):
        read_table(nested(50_000))


def test_plain_python_values() -> None:
    plain = {
        "small": 7, "big": 1 << 40, "yes": True, "text": "grün", "none": None, "half": 0.5,
        "price": Decimal("3.14"), "at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "list": [1, "two"], "table": {"a": 1},
    }  # fmt: skip
    fields, _ = read_table(write_table(plain))
    assert to_python(fields) == plain
    assert [field.type for field in fields] == ["I", "l", "t", "S", "V", "d", "D", "T", "A", "F"]


def test_a_time_that_no_calendar_holds_stays_a_number() -> None:
    assert to_python([Field("at", "T", (1 << 64) - 1)]) == {"at": (1 << 64) - 1}


def test_a_value_without_a_field_type_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        write_table({"a": {1, 2}})


def test_short_strings() -> None:
    assert write_short_string("grün") == b"\x05gr\xc3\xbcn"
    assert read_short_string(b"..\x05gr\xc3\xbcn", 2) == ("grün", 8)
    assert read_short_octets(b"\x02\xff\xfe!", 0) == (b"\xff\xfe", 3)
    assert write_short_string(b"x" * 255)[0] == 255
    with pytest.raises(ValueError, match="255"):
        write_short_string("x" * 256)
    with pytest.raises(MalformedFrame, match="UTF-8"):
        read_short_string(b"\x02\xff\xfe", 0)
    with pytest.raises(MalformedFrame):
        read_short_octets(b"\x03ab", 0)
    with pytest.raises(MalformedFrame):
        read_short_octets(b"", 0)
