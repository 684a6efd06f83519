"""Protobuf in a column, by the package ``protobuf``: no jar is needed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as t

from jumpmq.spark.by_schema import Decoder, decoded, refuse_itself
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.files import require

TIMESTAMP = "google.protobuf.Timestamp"

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def from_protobuf(data: Column | str, message: str, descriptors: str | Path | bytes) -> Column:
    """Decode a column of protobuf messages.

    A row is null if its octets are no such message. Enumerations become text, ``google.protobuf.Timestamp`` becomes a
    timestamp, and unsigned 64-bit integers become decimals of 20 digits. An unset field is null if protobuf records
    the presence of the field; otherwise the field has its default.

    Args:
        data: a column of octets, such as ``body``.
        message: full name of the message, such as ``shop.Payment``.
        descriptors: output of ``protoc --include_imports --descriptor_set_out=FILE``: the file's path, or its content.

    Raises:
        JumpMQError: there is no such message or file, or Spark has no such type; ``protobuf`` is not installed.
    """
    require("google.protobuf", "from_protobuf", "protobuf")
    try:
        octets = descriptors if isinstance(descriptors, bytes) else Path(descriptors).read_bytes()
        type_ = _struct(_class(octets, message).DESCRIPTOR)
    except JumpMQError:
        raise
    except OSError as error:
        raise JumpMQError(f"cannot read the descriptors of protobuf: {error}") from None
    except KeyError:
        raise JumpMQError(f"the descriptors of protobuf have no message '{message}'") from None
    except Exception as error:
        raise JumpMQError(f"the descriptors of protobuf make no sense: {type(error).__name__}: {error}") from None

    def make() -> Decoder:
        kind = _class(octets, message)
        read = _reader(kind.DESCRIPTOR)
        return lambda found: read(kind.FromString(found))

    return decoded(data, type_, make)


@cache
def _class(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def _struct(descriptor: Any, around: tuple[str, ...] = ()) -> t.StructType:
    refuse_itself(descriptor.full_name, around)
    within = (*around, descriptor.full_name)
    return t.StructType([t.StructField(field.name, _type(field, within)) for field in descriptor.fields])


def _type(field: Any, around: tuple[str, ...]) -> t.DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return t.MapType(_type(key, around), _type(value, around))
    one = _single(field, around)
    return t.ArrayType(one) if field.is_repeated else one


def _single(field: Any, around: tuple[str, ...]) -> t.DataType:
    if field.message_type is not None:
        return t.TimestampType() if field.message_type.full_name == TIMESTAMP else _struct(field.message_type, around)
    if field.type == field.TYPE_BYTES:
        return t.BinaryType()
    return {
        field.CPPTYPE_INT32: t.IntegerType(),
        field.CPPTYPE_INT64: t.LongType(),
        field.CPPTYPE_UINT32: t.LongType(),
        field.CPPTYPE_UINT64: t.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: t.DoubleType(),
        field.CPPTYPE_FLOAT: t.FloatType(),
        field.CPPTYPE_BOOL: t.BooleanType(),
        field.CPPTYPE_ENUM: t.StringType(),
        field.CPPTYPE_STRING: t.StringType(),
    }[field.cpp_type]


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _reader(descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that converts a message to a dictionary."""
    fields = [(field.name, field.has_presence and not field.is_repeated, _value(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if optional and not message.HasField(name) else value(getattr(message, name))
            for name, optional, value in fields
        }

    return read


def _value(field: Any) -> Callable[[Any], Any]:
    if _is_map(field):
        key, value = map(_single_value, field.message_type.fields)
        return lambda found: [(key(one), value(found[one])) for one in found]
    one = _single_value(field)
    return (lambda found: [one(each) for each in found]) if field.is_repeated else one


def _single_value(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _timestamp if field.message_type.full_name == TIMESTAMP else _reader(field.message_type)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    return lambda found: found


def _timestamp(found: Any) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
