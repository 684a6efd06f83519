"""Unpublishable rows, and the other rows of the same frame."""

from __future__ import annotations

import datetime
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, MapType, StringType, StructType
from tests.generating import examples

from jumpmq.amqp import _reference as reference
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark import JumpMQError, encoding
from jumpmq.spark.publishable import _encoded, check_publishable, publishable

kernel: ModuleType = pytest.importorskip("jumpmq.amqp._kernel", reason="the compiled kernel is not built")

LONG = "x" * 256
SHOWN = r"x{40}\.\.\.' of 256 octets, and must have at most 255"
TIMES = pa.map_(pa.string(), pa.timestamp("us", "UTC"))
KAFKAS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WORDS = StringType()
BEFORE_1970 = datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("column", "value", "type_", "refusal"),
    [
        ("exchange", LONG, pa.string(), f"a row's 'exchange' is '{SHOWN}"),
        ("queue", LONG, pa.string(), f"a row's 'queue' is '{SHOWN}"),
        ("routing_key", LONG.encode(), pa.binary(), f"a row's 'routing_key' is '{SHOWN}"),
        ("message_id", LONG, pa.string(), f"a row's 'message_id' is '{SHOWN}"),
        ("properties", {"reply_to": LONG}, pa.struct([("reply_to", pa.string())]), f"a row's 'reply_to' is '{SHOWN}"),
        ("correlation_id", "é" * 128, pa.string(), "a row's 'correlation_id' is 'é{40}\\.\\.\\.' of 256 octets, and"),
        ("headers", [(LONG, "v")], pa.map_(pa.string(), pa.string()), f"the key of a row's header is '{SHOWN}"),
        ("headers", [("a\n" * 128, "v")], pa.map_(pa.string(), pa.string()), r"is '(a\\n){20}\.\.\.' of 256 octets"),
        ("priority", 300, pa.int32(), "a row's 'priority' is 300, and must be from 0 to 255"),
        ("priority", -(1 << 60), pa.int64(), "a row's 'priority' is -1152921504606846976, and must be from 0"),
        ("delivery_mode", -1, pa.int32(), r"a row's 'delivery_mode' is -1, and must be 1 \(transient\) or 2 \(persist"),
        ("delivery_mode", 3, pa.int64(), "a row's 'delivery_mode' is 3, and must be 1"),
        ("properties", {"delivery_mode": 0}, pa.struct([("delivery_mode", pa.int32())]), "'delivery_mode' is 0, and"),
        ("expiration", -1, pa.int32(), "a row's 'expiration' is -1 milliseconds, and must be not below 0"),
        ("timestamp", BEFORE_1970, pa.timestamp("us", "UTC"), "a row's 'timestamp' is 1969-12-31 .* none before 1970"),
        ("properties", {"priority": 300}, pa.struct([("priority", pa.int64())]), "a row's 'priority' is 300"),
        (
            "headers",
            [("t", BEFORE_1970)],
            TIMES,
            "a row's header 't' is 1969-12-31 .*, and AMQP has no time before 1970",
        ),
        ("headers", [{"key": None, "value": b""}], KAFKAS, "a row has a header without a key"),
    ],
)
def test_a_value_that_amqp_has_no_room_for_is_named(column: str, value: Any, type_: Any, refusal: str) -> None:
    rows = pa.record_batch({"body": ["b"], "routing_key": ["k"]} | {column: pa.array([value], type_)})
    with pytest.raises(JumpMQError, match=refusal):
        publishable(rows, True, False)


def test_no_rows_are_no_error() -> None:
    nothing = pa.record_batch({"body": pa.array([], pa.string()), "routing_key": pa.array([], pa.string())})
    assert publishable(nothing, True, False).num_rows == 0


def test_columns_of_one_name_are_refused() -> None:
    schema = StructType().add("routing_key", StringType()).add("body", StringType()).add("body", StringType())
    with pytest.raises(JumpMQError, match="there are several columns 'body'"):
        check_publishable(schema, True, False)


def test_text_and_octets_with_long_offsets_are_the_same() -> None:
    """Columns with 64-bit offsets (``spark.sql.execution.arrow.useLargeVarTypes``) give the same octets."""
    octets = Properties(message_id="m", headers=[Field("h", "I", 1)]).encode()
    text, binary = pa.large_string(), pa.large_binary()
    columns = {
        "routing_key": pa.array([b"k"], binary),
        "body": pa.array(["b"], text),
        "headers": pa.array([[("h", "1")]], pa.map_(text, text)),
        "properties": pa.array([{"message_id": "m"}], pa.struct([("message_id", text)])),
        "amqp_properties": pa.array([octets], binary),
    }
    assert publishable(pa.record_batch(columns), True, False).to_pylist() == [
        {"routing_key": b"k", "body": b"b", "properties": octets}
    ]


def test_a_read_message_is_written_with_the_delivery_mode_of_its_publisher() -> None:
    octets = Properties(delivery_mode=3, message_id="m").encode()
    columns = {
        "body": pa.array([b"b"]),
        "properties": pa.array([{"delivery_mode": 3}], pa.struct([("delivery_mode", pa.int32())])),
        "amqp_properties": pa.array([octets], pa.binary()),
    }
    assert publishable(pa.record_batch(columns), True, True).to_pylist() == [{"body": b"b", "properties": octets}]


TEXT = st.none() | st.text(max_size=4) | st.just("x" * 255)
WHEN = st.none() | st.datetimes(datetime.datetime(1970, 1, 1), timezones=st.just(datetime.UTC))
OCTET = st.none() | st.integers(0, 255)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "headers": st.none()
            | st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=4)), max_size=3),
            "properties": st.none()
            | st.fixed_dictionaries({"message_id": TEXT, "priority": OCTET, "timestamp": WHEN, "type": TEXT}),
            "message_id": TEXT,
            "delivery_mode": OCTET,
        }
    ),
    max_size=6,
)
WHOLE_TYPES = pa.schema(
    {
        "headers": pa.map_(pa.string(), pa.string()),
        "properties": pa.struct(
            {
                "message_id": pa.string(),
                "priority": pa.int32(),
                "timestamp": pa.timestamp("us", "UTC"),
                "type": pa.string(),
            }
        ),
        "message_id": pa.string(),
        "delivery_mode": pa.int32(),
    }
)


@pytest.mark.parametrize("module", [kernel, reference], ids=["kernel", "reference"])
@settings(max_examples=examples(100), deadline=None)
@given(rows=ROWS, first=st.integers(0, 3), columns=st.sets(st.sampled_from(WHOLE_TYPES.names), min_size=1))
def test_properties_of_many_rows_are_those_of_each(
    module: ModuleType, rows: list[dict[str, Any]], first: int, columns: set[str]
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, WHOLE_TYPES).select(sorted(columns))
    if "headers" not in columns:
        batch = batch.slice(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "encode_properties", module.encode_properties)
        found = encoding.encoded(batch)
    assert found is not None
    assert found.to_pylist() == [_encoded(row) for row in batch.to_pylist()]
    found.validate(full=True)


def test_a_time_of_a_far_year_is_not_rounded_up() -> None:
    when = datetime.datetime(4000, 1, 1, 0, 0, 0, 999_999, datetime.UTC)
    expected = Properties(timestamp=int(when.replace(microsecond=0).timestamp())).encode()
    assert _encoded({"timestamp": when}) == expected


def octets_of(**columns: pa.Array) -> list[Properties | None]:
    """Published properties of rows with the given columns."""
    rows = len(next(iter(columns.values())))
    batch = pa.record_batch({"body": pa.array(["b"] * rows), "routing_key": pa.array(["k"] * rows)} | columns)
    found = publishable(batch, True, False).column("properties").to_pylist()
    return [None if one is None else Properties.parse(one) for one in found]


@pytest.mark.parametrize(
    ("type_", "value", "kind", "published"),
    [
        (pa.int8(), 5, "b", 5),
        (pa.int16(), -5, "s", -5),
        (pa.int32(), 5, "I", 5),
        (pa.int64(), 1 << 40, "l", 1 << 40),
        (pa.float64(), 0.5, "d", 0.5),
        (pa.bool_(), True, "t", True),
        (pa.string(), "5", "S", "5"),
        (pa.binary(), b"\xff", "S", b"\xff"),
        (pa.timestamp("us", "UTC"), datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC), "T", 1356998400),
    ],
)
def test_headers_keep_the_type_of_their_values(type_: Any, value: Any, kind: str, published: Any) -> None:
    """Headers as a map, in Kafka's shape, and among other read headers keep the types of their values."""
    expected = [Field("a", kind, published), Field("n", "V", None)]
    as_map = pa.array([[("a", value), ("n", None)], None, []], pa.map_(pa.string(), type_))
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", type_)]))
    as_pairs = pa.array([[{"key": "a", "value": value}, {"key": "n", "value": None}], None, []], pairs)
    for headers in (as_map, as_pairs):
        assert octets_of(headers=headers) == [Properties(headers=expected), None, None]
    read = Properties(message_id="m", headers=[Field("b", "I", 1)])
    octets = pa.array([read.encode()] * 3, pa.binary())
    changed, *_ = octets_of(headers=as_pairs, amqp_properties=octets)
    assert changed == Properties(message_id="m", headers=expected)


def test_whole_numbers_and_partial_properties_are_taken() -> None:
    numbers = {
        name: pa.array([2, None], pa.int64()) for name in ("priority", "delivery_mode", "expiration", "message_id")
    }
    assert octets_of(**numbers) == [Properties(priority=2, delivery_mode=2, expiration="2", message_id="2"), None]
    part = pa.array(
        [{"expiration": 60_000, "priority": 3}, None], pa.struct([("expiration", pa.int32()), ("priority", pa.int8())])
    )
    assert octets_of(properties=part) == [Properties(expiration="60000", priority=3), None]
    read = pa.array([Properties(message_id="m", priority=1).encode()] * 2, pa.binary())
    assert octets_of(properties=part, amqp_properties=read)[0] == Properties(
        message_id="m", expiration="60000", priority=3
    )


@pytest.mark.parametrize(
    ("name", "type_", "refusal"),
    [
        ("headers", MapType(LongType(), WORDS), r"must be of type map<string,V> or array<struct<key:string,value:V>>"),
        ("headers", MapType(WORDS, ArrayType(WORDS)), "'headers' must be of type map<string,V>"),
        ("headers", ArrayType(StructType().add("name", WORDS).add("value", WORDS)), "must be of type map<string,V>"),
        ("priority", WORDS, "'priority' must be of type int, not string: cast it"),
        ("expiration", DoubleType(), "'expiration' must be of type string or bigint, not double: cast it"),
        ("timestamp", LongType(), "'timestamp' must be of type timestamp, not bigint: cast it"),
        ("properties", WORDS, "'properties' must be of type struct of some of content_type"),
        ("properties", StructType().add("colour", WORDS), "there is no 'colour'"),
        ("properties", StructType().add("priority", WORDS), "must be of type struct with 'priority' of type int"),
    ],
)
def test_types_whose_meaning_is_not_plain_are_refused(name: str, type_: DataType, refusal: str) -> None:
    schema = StructType().add("routing_key", StringType()).add("body", StringType())
    schema.add(name, type_)
    with pytest.raises(JumpMQError, match=refusal):
        check_publishable(schema, True, False)


def test_copies_are_headers_of_long_strings() -> None:
    keys = pa.array([["a", "b"], [], None], pa.list_(pa.string()))
    rows = pa.record_batch(
        {"body": ["1", "2", "3"], "routing_key": ["k"] * 3, "message_id": ["m", None, None], "cc": keys}
    )
    first, *others = publishable(rows, True, False).column("properties").to_pylist()
    copies = Field("CC", "A", [("S", "a"), ("S", "b")])
    assert first == Properties(message_id="m", headers=[copies]).encode()
    assert others == [None, None]
    alone = pa.record_batch({"body": ["1"], "routing_key": ["k"], "bcc": pa.array([["a"]])})
    (octets,) = publishable(alone, True, False).column("properties").to_pylist()
    assert octets == Properties(headers=[Field("BCC", "A", [("S", "a")])]).encode()


@pytest.mark.parametrize(
    ("copies", "headers", "reason"),
    [
        ([None], [], "'cc' has a key that is null"),
        ([LONG], [], f"a key of a row's 'cc' is '{SHOWN}"),
        (["a"], [("CC", "b")], "a row has the header 'CC' already"),
    ],
)
def test_copies_that_make_no_sense_are_named(copies: list[Any], headers: list[Any], reason: str) -> None:
    given = pa.array([headers], pa.map_(pa.string(), pa.string()))
    rows = pa.record_batch(
        {"body": ["b"], "routing_key": ["k"], "headers": given, "cc": pa.array([copies], pa.list_(pa.string()))}
    )
    with pytest.raises(JumpMQError, match=reason):
        publishable(rows, True, False)
