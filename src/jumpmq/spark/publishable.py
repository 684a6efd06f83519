"""Conversion of Spark's columns to published messages: keys, bodies, and AMQP properties as octets."""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark.as_given import as_encoded, as_read, expected_of, kind_of_headers
from jumpmq.spark.carbon_copies import COPIES, with_copies
from jumpmq.spark.decoding import decoded
from jumpmq.spark.encoding import encoded
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.lengths import require_short, require_short_texts
from jumpmq.spark.schema import OF_PROPERTIES, PROPERTIES

TEXTS = ("routing_key", "body", "exchange", "queue")
"""Columns of text or octets; text is encoded as UTF-8."""

IGNORED = ("seq", "published_at", "redelivered", "owner_epoch")
"""Columns of the source that the sink ignores, so that rows can be written as read."""


def check_publishable(schema: StructType, has_exchange: bool, has_queue: bool) -> None:
    """Validate the columns of a DataFrame to publish.

    Args:
        has_exchange, has_queue: True if an option names the exchange, or the queue.

    Raises:
        JumpMQError: a column is missing, unknown, or of another type.
    """
    names = set(schema.names)
    if twice := next((name for name in schema.names if schema.names.count(name) > 1), None):
        raise JumpMQError(f"there are several columns '{twice}': drop the others")
    if "body" not in names:
        raise JumpMQError(f"there is no column 'body'; there are {', '.join(schema.names)}")
    if not (has_exchange or has_queue or "exchange" in names or "queue" in names):
        raise JumpMQError("give option 'exchange' or 'queue', or a column of one of these names")
    if "routing_key" not in names and not (has_queue or "queue" in names):
        raise JumpMQError(f"there is no column 'routing_key'; there are {', '.join(schema.names)}")
    for field in schema:
        if field.name in PROPERTIES.names or field.name in ("headers", "properties"):
            wanted = expected_of(field.name, field.dataType)
            if wanted is not None:
                found = field.dataType.simpleString()
                raise JumpMQError(f"column '{field.name}' must be of type {wanted}, not {found}: cast it")
            continue
        expected = _expected(field.name)
        if expected is None:
            raise JumpMQError(
                f"column '{field.name}' cannot be published; there are {', '.join(TEXTS)}, "
                f"{', '.join(COPIES)}, {', '.join(OF_PROPERTIES)}, {', '.join(PROPERTIES.names)}"
            )
        words, found = [one.simpleString() for one in expected], field.dataType.simpleString()
        if words and found not in words:  # compared by name, as nullability of elements does not matter
            raise JumpMQError(f"column '{field.name}' must be of type {' or '.join(words)}, not {found}: cast it")


def _expected(name: str) -> tuple[DataType, ...] | None:
    """Return the types allowed for a column, empty for an ignored one; None for an unknown column."""
    if name in ("exchange", "queue"):
        return (StringType(),)
    if name in TEXTS:
        return StringType(), BinaryType()
    if name == "amqp_properties":
        return (BinaryType(),)
    if name in COPIES:
        return (ArrayType(StringType()),)
    return () if name in IGNORED else None


def publishable(batch: pa.RecordBatch, has_exchange: bool, has_queue: bool) -> pa.RecordBatch:
    """Convert rows from Spark's columns to the broker's.

    Args:
        has_exchange, has_queue: True if an option names the exchange, or the queue, for rows without one.

    Raises:
        JumpMQError: a value cannot be published.
    """
    batch = _with_short_offsets(batch)
    columns: dict[str, pa.Array] = {}
    for name in TEXTS:
        if name in batch.schema.names:
            kind = pa.string() if name in ("exchange", "queue") else pa.binary()
            columns[name] = batch.column(name).cast(kind)
    if columns["body"].null_count:
        raise JumpMQError("a row's 'body' is null: publish an empty one, or leave the row out")
    if not has_queue:
        _require_addresses(columns, has_exchange)
    for name in ("routing_key", "exchange", "queue"):
        if name in columns:
            require_short(columns[name], f"a row's '{name}'")
    properties = with_copies(_properties(batch), batch)
    if properties is not None:
        columns["properties"] = properties
    return pa.record_batch(columns)


def _with_short_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without the 64-bit offsets that Spark sends with ``useLargeVarTypes``."""
    wanted = pa.schema([field.with_type(_short(field.type)) for field in batch.schema])
    return batch if wanted.equals(batch.schema) else batch.cast(wanted)


def _short(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_short(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_short(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(_short(type_.key_type), type_.item_field.with_type(_short(type_.item_type)))
    return type_


def _require_addresses(columns: dict[str, pa.Array], has_exchange: bool) -> None:
    """Refuse rows with neither a queue nor both routing key and exchange."""

    def given(name: str) -> pa.Array:
        column = columns.get(name)
        return (pa.nulls(len(columns["body"])) if column is None else column).is_valid()

    if not has_exchange and not pc.all(pc.or_(given("exchange"), given("queue")), min_count=0).as_py():
        raise JumpMQError("a row's 'exchange' or 'queue' is null, and no option of that name is given: give one")
    if not pc.all(pc.or_(given("routing_key"), given("queue")), min_count=0).as_py():
        raise JumpMQError("a row's 'routing_key' is null: publish an empty one, or leave the row out")


def _properties(batch: pa.RecordBatch) -> pa.BinaryArray | None:
    """Encode the rows' headers and properties; None without such columns.

    Rows with the column ``amqp_properties`` keep these octets. If another column of a row differs from the octets, as
    changed since the read, only the changed values are encoded anew.
    """
    names = [name for name in ("headers", "properties", *PROPERTIES.names) if name in batch.schema.names]
    batch = as_encoded(batch)
    kind = kind_of_headers(batch.schema.field("headers").type) if "headers" in names else "S"
    if "amqp_properties" not in batch.schema.names:
        return _encoded_rows(batch.select(names), kind) if names else None
    octets = batch.column("amqp_properties").cast(pa.binary())
    shown = decoded(octets, as_read(batch.schema))
    single = [name for name in names if name not in shown and batch.column(name).null_count < len(batch)]
    if not single and all(batch.column(name).equals(column) for name, column in shown.items()):
        return octets
    rows, before = batch.select(names).to_pylist(), pa.record_batch(shown).to_pylist() if shown else [{}] * len(batch)
    found = [_changed(*each, kind) for each in zip(octets.to_pylist(), before, rows, strict=True)]
    return pa.array(found, pa.binary())


def _encoded_rows(columns: pa.RecordBatch, kind: str) -> pa.BinaryArray:
    found = encoded(columns)
    return pa.array([_encoded(row, kind) for row in columns.to_pylist()], pa.binary()) if found is None else found


def _changed(octets: bytes | None, before: dict[str, Any], row: dict[str, Any], kind: str) -> bytes | None:
    """Return a row's encoded properties, with the values of changed columns.

    Args:
        octets: the encoded properties as read.
        before: the columns ``headers`` and ``properties`` as decoded from ``octets``.
        row: the columns to publish.
        kind: the AMQP field type of new headers.
    """
    if octets is None:
        return _encoded(row, kind)
    now = {name: value for name, value in row.items() if value != before.get(name)}
    if not now:
        return octets
    try:
        read = Properties.parse(octets)
    except AMQPError:
        return _encoded(row, kind)
    if "properties" in now:
        old, new = before["properties"] or {}, now.pop("properties") or dict.fromkeys(PROPERTIES.names)
        now |= {name: value for name, value in new.items() if value != old.get(name)} | now
    if "headers" in now:
        new = now.pop("headers")
        read.headers = _retyped(new, before.get("headers") or [], read.headers or [], kind) if new else None
    for name, value in now.items():
        setattr(read, name, _plain(value))
    return _octets(read)


def _retyped(new: list[Any], before: list[tuple[str, Any]], fields: list[Field], kind: str) -> list[Field]:
    """Return headers as AMQP fields: unchanged headers keep their field types, new ones have type ``kind``."""
    kept = dict(zip(before, fields, strict=True)) if before else {}
    return [kept.get(each) or _header(*each, kind) for each in map(_pair, new)]


def _encoded(row: dict[str, Any], kind: str = "S") -> bytes | None:
    """Return a row's encoded properties; None for a row without properties."""
    found: dict[str, Any] = dict(row.pop("properties", None) or {})
    headers = row.pop("headers", None)
    found |= {name: value for name, value in row.items() if value is not None}
    made = Properties(**{name: _plain(value) for name, value in found.items()})
    if headers:
        made.headers = [_header(*_pair(each), kind) for each in headers]
    return _octets(made) if made != Properties() else None


def _plain(value: Any) -> Any:
    # Without microseconds: as a float, 0.999999 s of a far year would be the next second.
    return int(value.replace(microsecond=0).timestamp()) if isinstance(value, datetime) else value


def _octets(properties: Properties) -> bytes:
    try:
        return properties.encode()
    except (ValueError, OverflowError, struct.error) as error:
        require_short_texts(properties)
        raise JumpMQError(f"a row's properties cannot be encoded: {error}") from None


def _pair(header: Any) -> tuple[str, Any]:
    """Return name and value of a header, given as a pair of a map or as a struct of an array.

    Raises:
        JumpMQError: the header has no name.
    """
    if isinstance(header, tuple):
        return header
    if header is None or header["key"] is None:
        raise JumpMQError("a row has a header without a key")
    return header["key"], header["value"]


def _header(name: str, value: Any, kind: str) -> Field:
    """Return a header as an AMQP field.

    Raises:
        JumpMQError: the value is a time before 1970.
    """
    plain = _plain(value)
    if kind == "T" and plain is not None and plain < 0:
        raise JumpMQError(f"a row's header '{name}' is {value}, and AMQP has no time before 1970")
    return Field(name, "V", None) if value is None else Field(name, kind, plain)
