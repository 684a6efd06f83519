"""What becomes of rows that cannot be published, and of those that can."""

from __future__ import annotations

import datetime
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructType
from tests.generating import examples

from jumpmq.amqp import _reference as reference
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark import JumpMQError, encoding
from jumpmq.spark.publishable import _encoded, check_publishable, publishable

kernel: ModuleType = pytest.importorskip("jumpmq.amqp._kernel", reason="the compiled kernel is not built")

LONG = "x" * 256
BEFORE_1970 = datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("column", "value", "type_", "refusal"),
    [
        ("exchange", LONG, pa.string(), "'exchange' has more than 255 octets"),
        ("queue", LONG, pa.string(), "'queue' has more than 255 octets"),
        ("message_id", LONG, pa.string(), "properties cannot be encoded: a short string"),
        ("headers", [(LONG, "v")], pa.map_(pa.string(), pa.string()), "properties cannot be encoded: a short string"),
        ("priority", 300, pa.int32(), "properties cannot be encoded"),
        ("delivery_mode", -1, pa.int32(), "properties cannot be encoded"),
        ("timestamp", BEFORE_1970, pa.timestamp("us", "UTC"), "properties cannot be encoded"),
    ],
)
def test_a_value_that_amqp_has_no_room_for_is_named(column: str, value: Any, type_: Any, refusal: str) -> None:
    rows = pa.record_batch({"body": ["b"], "routing_key": ["k"], column: pa.array([value], type_)})
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
    """As they come with ``spark.sql.execution.arrow.useLargeVarTypes``."""
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


@pytest.mark.parametrize("twin", [kernel, reference], ids=["kernel", "reference"])
@settings(max_examples=examples(100), deadline=None)
@given(rows=ROWS, first=st.integers(0, 3), columns=st.sets(st.sampled_from(WHOLE_TYPES.names), min_size=1))
def test_properties_of_many_rows_are_those_of_each(
    twin: ModuleType, rows: list[dict[str, Any]], first: int, columns: set[str]
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, WHOLE_TYPES).select(sorted(columns))
    if "headers" not in columns:
        batch = batch.slice(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "encode_properties", twin.encode_properties)
        found = encoding.encoded(batch)
    assert found is not None
    assert found.to_pylist() == [_encoded(row) for row in batch.to_pylist()]
    found.validate(full=True)
