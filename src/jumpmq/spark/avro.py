"""Avro in a column, by the package ``fastavro``: no jar is needed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as t

from jumpmq.spark.by_schema import Decoder, decoded, refuse_itself
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.files import require

PRIMITIVES: dict[str, t.DataType] = {
    "null": t.NullType(), "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(),
    "float": t.FloatType(), "double": t.DoubleType(), "bytes": t.BinaryType(), "string": t.StringType(),
}  # fmt: skip

LOGICAL: dict[str, t.DataType] = {
    "date": t.DateType(), "uuid": t.StringType(),
    "timestamp-millis": t.TimestampType(), "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(), "local-timestamp-micros": t.TimestampNTZType(),
}  # fmt: skip
"""Supported logical types beside ``decimal``; values of other logical types keep the underlying type."""

UNDERSTOOD = {*LOGICAL, "decimal"}


def from_avro(data: Column | str, schema: str) -> Column:
    """Decode a column of Avro's binary encoding, without a container or a header of a schema registry.

    A row is null if its octets do not follow the schema. Unions are of one type and null.

    Args:
        data: a column of octets, such as ``body``.
        schema: the writer's schema, as JSON.

    Raises:
        JumpMQError: the schema is malformed, or Spark has no such type; ``fastavro`` is not installed.
    """
    require("fastavro", "from_avro", "fastavro")
    try:
        found = _plain(json.loads(schema))
        type_ = _Types().of(_parsed(found))
    except JumpMQError:
        raise
    except Exception as error:
        raise JumpMQError(f"the Avro schema makes no sense: {type(error).__name__}: {error}") from None

    def make() -> Decoder:
        from fastavro import schemaless_reader

        parsed = _parsed(found)

        def decode(octets: bytes) -> Any:
            source = io.BytesIO(octets)
            value = schemaless_reader(source, parsed, None)
            if source.read(1):
                raise ValueError("there are octets behind the value")
            return value

        return decode

    return decoded(data, type_, make)


def _parsed(schema: Any) -> Any:
    from fastavro import parse_schema

    return parse_schema(schema)


def _plain(schema: Any) -> Any:
    """Return a schema without unsupported logical types, whose values keep the underlying type."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if isinstance(schema, dict):
        kept = {name: _plain(value) if name != "default" else value for name, value in schema.items()}
        if kept.get("logicalType") not in UNDERSTOOD:
            kept.pop("logicalType", None)
        elif kept["logicalType"] == "uuid":
            del kept["logicalType"]  # the underlying text is the value
        return kept
    return schema


class _Types:
    """Converts a schema, as ``fastavro`` parsed it with full names, to Spark's types."""

    def __init__(self) -> None:
        self._named: dict[str, t.DataType] = dict(PRIMITIVES)

    def of(self, schema: Any, around: tuple[str, ...] = ()) -> t.DataType:
        if isinstance(schema, list):
            return self._union(schema, around)
        if isinstance(schema, str):
            refuse_itself(schema, around)
            if schema not in self._named:
                raise JumpMQError(f"the Avro schema has no type '{schema}'")
            return self._named[schema]
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, around)
        if (logical := schema.get("logicalType")) is not None:
            return self._note(schema, _logical(logical, schema))
        match kind:
            case "record" | "error":
                return self._note(schema, self._record(schema, around))
            case "enum":
                return self._note(schema, t.StringType())
            case "fixed":
                return self._note(schema, t.BinaryType())
            case "array":
                items = self.of(schema["items"], around)
                if _is_nothing(items):  # a few octets could declare billions of items, at no cost to the sender
                    raise JumpMQError("the Avro schema has an array of items that take no octets")
                return t.ArrayType(items)
            case "map":
                return t.MapType(t.StringType(), self.of(schema["values"], around))
        return self.of(kind, around)

    def _union(self, schema: list[Any], around: tuple[str, ...]) -> t.DataType:
        kinds = [one for one in schema if one != "null"]
        if len(kinds) > 1:
            raise JumpMQError("the Avro schema has a union of several types beside null, and Spark has no such type")
        return self.of(kinds[0], around) if kinds else t.NullType()

    def _record(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> t.StructType:
        within = (*around, schema["name"])
        fields = ((field["name"], self.of(field["type"], within)) for field in schema["fields"])
        return t.StructType([t.StructField(*field) for field in fields])

    def _note(self, schema: Mapping[str, Any], type_: t.DataType) -> t.DataType:
        if "name" in schema:
            self._named[schema["name"]] = type_
        return type_


def _logical(name: str, schema: Mapping[str, Any]) -> t.DataType:
    return t.DecimalType(schema["precision"], schema.get("scale", 0)) if name == "decimal" else LOGICAL[name]


def _is_nothing(type_: t.DataType) -> bool:
    if isinstance(type_, t.StructType):
        return all(_is_nothing(field.dataType) for field in type_)
    return isinstance(type_, t.NullType)
