"""What becomes of rows that cannot be published, and of those that can."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark import JumpMQError
from jumpmq.spark.publishable import check_publishable, publishable

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
