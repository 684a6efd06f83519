"""Conversion of the broker's columns to Spark's, without a Spark session."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark import SCHEMA
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import wire_columns


def convert(octets: list[bytes], *names: str) -> list[dict[str, Any]]:
    """Rows of the named columns, of messages with the given properties."""
    schema = StructType([SCHEMA[name] for name in names])
    batch = pa.record_batch({"properties": pa.array(octets, pa.binary())})
    rows: list[dict[str, Any]] = converter(schema)(batch).to_pylist()
    return rows


def test_arrow_types_are_those_that_spark_checks_for() -> None:
    assert converter(SCHEMA)(empty()).schema == to_arrow_schema(SCHEMA, timezone="UTC")


def empty() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "queue": pa.array([], pa.string()),
            "seq": pa.array([], pa.int64()),
            "exchange": pa.array([], pa.string()),
            "routing_key": pa.array([], pa.binary()),
            "properties": pa.array([], pa.binary()),
            "body": pa.array([], pa.binary()),
            "published_at": pa.array([], pa.timestamp("us", "UTC")),
            "redelivered": pa.array([], pa.bool_()),
        }
    )


def test_rows_keep_their_own_properties_where_many_are_alike() -> None:
    some = [Properties(message_id="a", headers=[Field("n", "I", 1)]), Properties(), Properties(message_id="b")]
    rows = convert([some[number].encode() for number in (0, 1, 2, 1, 0)], "headers", "properties")
    assert [row["properties"]["message_id"] for row in rows] == ["a", None, "b", None, "a"]
    assert [row["headers"] for row in rows] == [[("n", "1")], [], [], [], [("n", "1")]]


def test_octets_that_cannot_be_read_are_null_and_harm_no_other_row() -> None:
    fine = Properties(type="t", headers=[Field("a", "S", "b")]).encode()
    rows = convert([b"", fine, b"\x20\x00\xff", b"\x80\x00"], "headers", "properties")
    assert [row["headers"] for row in rows] == [None, [("a", "b")], None, None]
    assert [row["properties"] and row["properties"]["type"] for row in rows] == [None, "t", None, None]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
        (253402300799, datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)),
        (253402300800, None),
        ((1 << 64) - 1, None),
    ],
)
def test_timestamps_that_spark_cannot_hold_are_null(seconds: int, shown: datetime.datetime | None) -> None:
    (row,) = convert([Properties(timestamp=seconds).encode()], "properties")
    assert row["properties"]["timestamp"] == shown


def test_a_header_that_is_there_twice_has_its_later_value() -> None:
    twice = Properties(headers=[Field("a", "S", "1"), Field("b", "S", "2"), Field("a", "S", "3")])
    (row,) = convert([twice.encode()], "headers")
    assert row["headers"] == [("a", "3"), ("b", "2")]


def test_text_that_is_not_utf_8_shows_replacements() -> None:
    (row,) = convert([b"\x00\x08\x02\xffa"], "properties")
    assert row["properties"]["app_id"] == "\ufffda"


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ([], ["seq"]),
        (["queue", "body"], ["body", "queue"]),
        (["headers", "properties"], ["properties"]),
        (["headers", "seq"], ["properties", "seq"]),
    ],
)
def test_only_what_is_needed_is_asked_for(names: list[str], columns: list[str]) -> None:
    assert wire_columns(StructType([SCHEMA[name] for name in names])) == columns
