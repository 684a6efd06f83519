"""Bodies in Avro and protobuf are decoded; a body that violates the schema is null."""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import SparkSession

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, timestamp_pb2  # noqa: E402
from pyspark.sql.pandas.types import to_arrow_type  # noqa: E402

from jumpmq.spark import JumpMQError, avro, by_schema, from_avro, from_protobuf, protobuf  # noqa: E402  # noqa: E402

WHEN = datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=datetime.UTC)

PAYMENT = json.dumps(
    {
        "type": "record",
        "name": "Payment",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}},
            {"name": "other", "type": ["null", "Kind"], "default": None},
            {"name": "mark", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
            {
                "name": "who",
                "type": {"type": "record", "name": "Who", "fields": [{"name": "name", "type": "string"}]},
            },
            {"name": "again", "type": ["null", "shop.Who"]},
        ],
    }
)

PAID: dict[str, Any] = {
    "id": 1 << 40, "amount": Decimal("10.50"), "at": WHEN, "day": WHEN.date(), "kind": "CARD", "other": "CASH",
    "mark": "8a1c", "tags": ["a", "ä"], "counts": {"x": 3}, "raw": b"\0\xff", "who": {"name": "Ann"}, "again": None,
}  # fmt: skip


def avro_octets(schema: str, value: Any) -> bytes:
    found = io.BytesIO()
    fastavro.schemaless_writer(found, fastavro.parse_schema(json.loads(schema)), value)
    return found.getvalue()


def descriptors() -> bytes:
    """``shop.Payment`` as described by ``protoc``."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="CARD", number=0)
    kind.value.add(name="CASH", number=1)
    who = file.message_type.add(name="Who")
    who.field.add(name="name", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    itself = file.message_type.add(name="Node")
    itself.field.add(name="next", number=1, type="TYPE_MESSAGE", type_name=".shop.Node", label="LABEL_OPTIONAL")
    payment = file.message_type.add(name="Payment")
    for number, (name, type_, label, of) in enumerate(
        (
            ("id", "TYPE_INT64", "LABEL_OPTIONAL", ""),
            ("much", "TYPE_UINT64", "LABEL_OPTIONAL", ""),
            ("amount", "TYPE_DOUBLE", "LABEL_OPTIONAL", ""),
            ("at", "TYPE_MESSAGE", "LABEL_OPTIONAL", ".google.protobuf.Timestamp"),
            ("kind", "TYPE_ENUM", "LABEL_OPTIONAL", ".shop.Kind"),
            ("tags", "TYPE_STRING", "LABEL_REPEATED", ""),
            ("whos", "TYPE_MESSAGE", "LABEL_REPEATED", ".shop.Who"),
            ("counts", "TYPE_MESSAGE", "LABEL_REPEATED", ".shop.Payment.CountsEntry"),
            ("raw", "TYPE_BYTES", "LABEL_OPTIONAL", ""),
        ),
        1,
    ):
        payment.field.add(name=name, number=number, type=type_, label=label, type_name=of or None)
    entry = payment.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    entry.field.add(name="value", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    return bytes(files.SerializeToString())


def protobuf_octets(**fields: Any) -> bytes:
    kind = protobuf._class(descriptors(), "shop.Payment")
    return bytes(kind(**fields).SerializeToString())


def test_avro(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(avro_octets(PAYMENT, PAID),), (b"",), (b"\xff" * 40,), (None,)], "body binary")
    rows = [row.it for row in frame.select(from_avro("body", PAYMENT).alias("it")).collect()]
    assert rows[1:] == [None, None, None]
    found = rows[0].asDict(recursive=True)
    assert found.pop("at").replace(tzinfo=datetime.UTC) == WHEN
    assert found == {name: value for name, value in PAID.items() if name != "at"}


def test_protobuf(spark: SparkSession) -> None:
    fields = {"id": -5, "much": (1 << 64) - 1, "amount": 10.5, "kind": 1, "tags": ["a"], "raw": b"\0\xff"}
    octets = protobuf_octets(**fields, at=WHEN, whos=[{"name": "Ann"}], counts={"x": 3})
    frame = spark.createDataFrame([(octets,), (b"\xff",), (protobuf_octets(),), (None,)], "body binary")
    column = from_protobuf("body", "shop.Payment", descriptors())
    rows = [row.it and row.it.asDict(recursive=True) for row in frame.select(column.alias("it")).collect()]
    assert rows[0].pop("at").replace(tzinfo=datetime.UTC) == WHEN
    assert rows[0] == fields | {"kind": "CASH", "whos": [{"name": "Ann"}], "counts": {"x": 3}}
    none: dict[str, Any] = {
        "id": 0,
        "much": 0,
        "amount": 0.0,
        "at": None,
        "kind": "CARD",
        "tags": [],
        "whos": [],
        "counts": {},
    }
    assert rows[1:] == [None, none | {"raw": b""}, None]


def decoders() -> dict[str, tuple[Any, Any]]:
    parsed = avro._parsed(avro._plain(json.loads(PAYMENT)))
    kind = protobuf._class(descriptors(), "shop.Payment")
    read = protobuf._reader(kind.DESCRIPTOR)
    return {
        "avro": (lambda octets: fastavro.schemaless_reader(io.BytesIO(octets), parsed, None), avro._Types().of(parsed)),
        "protobuf": (lambda octets: read(kind.FromString(octets)), protobuf._struct(kind.DESCRIPTOR)),
    }


@pytest.mark.parametrize("name", ["avro", "protobuf"])
@given(good=some.booleans(), bad=some.binary(max_size=60), cut=some.integers(0, 100))
def test_no_octets_end_the_task_or_spoil_other_rows(name: str, good: bool, bad: bytes, cut: int) -> None:
    import pyarrow as pa

    decode, type_ = decoders()[name]
    whole = avro_octets(PAYMENT, PAID) if name == "avro" else protobuf_octets(id=7, at=WHEN, tags=["a"])
    arrow_type = to_arrow_type(type_, timezone="UTC")
    column = pa.array([whole, whole[:cut] + bad if good else bad, whole], pa.binary())
    found = by_schema.values_of(column, decode, arrow_type).to_pylist()
    assert found[0] == found[2] == by_schema.values_of(pa.array([whole]), decode, arrow_type).to_pylist()[0] is not None


def test_a_number_too_large_for_its_type_is_a_bad_row() -> None:
    import pyarrow as pa

    column = pa.array([b"1", b"99999999999", b"3"], pa.binary())
    assert by_schema.values_of(column, int, pa.int32()).to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "the Avro schema makes no sense"),
        ('"text"', "the Avro schema makes no sense"),
        ('{"type": "nothing"}', "the Avro schema makes no sense"),
        ('["null", "int", "string"]', "union of several types beside null"),
        ('{"type": "array", "items": "null"}', "an array of items that take no octets"),
        (
            '{"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}',
            "type 'N' contains itself",
        ),
    ],
)
def test_schemas_that_make_no_column_are_refused(schema: str, reason: str) -> None:
    with pytest.raises(JumpMQError, match=reason):
        from_avro("body", schema)


def test_messages_that_make_no_column_are_refused(tmp_path: Any) -> None:
    with pytest.raises(JumpMQError, match=r"type 'shop\.Node' contains itself"):
        from_protobuf("body", "shop.Node", descriptors())
    with pytest.raises(JumpMQError, match=r"have no message 'shop\.Order'"):
        from_protobuf("body", "shop.Order", descriptors())
    with pytest.raises(JumpMQError, match="cannot read the descriptors of protobuf"):
        from_protobuf("body", "shop.Payment", tmp_path / "nothing")
    with pytest.raises(JumpMQError, match="the descriptors of protobuf make no sense"):
        from_protobuf("body", "shop.Payment", struct.pack("<q", -1))
