"""An exchange's routing decision as plain data, to send to executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jumpmq.amqp.messages import Message, hash_keys
from jumpmq.amqp.properties import NO_PROPERTIES, Properties
from jumpmq.hashing import MISSING, HashRing, header_key, moduli, modulus_array, timestamp_key
from jumpmq.hashing.functions import NUMBERS, HashFunction, modulus_place
from jumpmq.spark.client import Client
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import BrokerAddress

HASHES = ("x-consistent-hash", "x-modulus-hash")


@dataclass(frozen=True)
class Router:
    """The routing decision of a consistent hash or modulus hash exchange.

    Attributes:
        ring: the ring of a consistent hash exchange; None for a modulus hash exchange.
        destinations: names of the destinations; the modulus is an index into them.
        source: description of the hashed value: the routing key, a header or a property.
        hashed: ``("header", NAME)`` or ``("property", NAME)``; None for the routing key.
        function: the hash function of a modulus hash exchange; a ring has its own.
    """

    ring: HashRing | None
    destinations: tuple[str, ...]
    source: str = "routing key"
    hashed: tuple[str, str] | None = None
    function: HashFunction = "phash2"

    @classmethod
    def of(cls, ring: HashRing) -> Router:
        """Return the decision of a ring."""
        return cls(ring, tuple(ring.names))

    @classmethod
    def even(cls, buckets: int, function: HashFunction = "phash2") -> Router:
        """Return the decision of a new ring with ``buckets`` queues of weight 1, named ``q1``, ``q2``…."""
        ring = HashRing(function=function)
        for number in range(1, buckets + 1):
            ring.add(f"q{number}", 1)
        return cls.of(ring)

    @classmethod
    def from_broker(cls, url: str, exchange: str, vhost: str = "/") -> Router:
        """Return the current routing decision of a live exchange.

        Args:
            url: the management URL of an administrator.

        Raises:
            JumpMQError: the exchange does not exist, or is of another type.
        """
        client = Client(BrokerAddress(url, vhost))
        client.require_broker()
        declared = client.exchange(exchange)
        if _routed_as(declared) == "x-consistent-hash":
            state = client.ring(exchange)
            destinations = [[one["destination"], one["runs"]] for one in state["destinations"]]
            ring = HashRing.restore(state | {"destinations": destinations})
            return cls(ring, tuple(ring.names), _source(declared["arguments"]), _hashed(declared["arguments"]))
        return cls._built(declared, client.bindings(exchange))

    @classmethod
    def from_definitions(cls, file: Path | str, exchange: str, vhost: str = "/") -> Router:
        """Return the decision that an exchange would have after an import of the definitions into a new broker.

        Raises:
            JumpMQError: the file cannot be read, or the exchange is missing or of another type.
        """
        try:
            found = json.loads(Path(file).read_text())
        except (OSError, ValueError) as error:
            raise JumpMQError(f"cannot read definitions from {file}: {error}") from None
        declared = [one for one in found.get("exchanges", ()) if (one["vhost"], one["name"]) == (vhost, exchange)]
        if not declared:
            raise JumpMQError(f"{file} has no exchange '{exchange}' in vhost '{vhost}'")
        bindings = [one for one in found.get("bindings", ()) if (one["vhost"], one["source"]) == (vhost, exchange)]
        return cls._built(declared[0], bindings)

    @classmethod
    def _built(cls, declared: dict[str, Any], bindings: list[dict[str, Any]]) -> Router:
        arguments = declared.get("arguments", {})
        source, function = _source(arguments), arguments.get("hash-function", "phash2")
        if _routed_as(declared) == "x-modulus-hash":
            names = sorted({_destination(one) for one in bindings}, key=partial(modulus_place, function=function))
            return cls(None, tuple(names), source, _hashed(arguments), function)
        if _routed_as(declared) != "x-consistent-hash":
            kinds = " and ".join(HASHES)
            raise JumpMQError(
                f"exchange '{declared['name']}' is of type {declared['type']}, which hashes nothing; {kinds} do"
            )
        ring = HashRing(arguments.get("ring-removal", "minimal"), function)
        for one in bindings:
            if _destination(one) not in ring:
                ring.add(_destination(one), int(one["routing_key"]))
        return cls(ring, tuple(ring.names), source, _hashed(arguments))

    def changed(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Router:
        """Return the decision after queues are bound (``NAME`` or ``NAME=WEIGHT``) and unbound.

        Raises:
            JumpMQError: a queue to add is bound already, a queue to remove is not bound, or a weight is invalid.
        """
        if self.ring is None:
            left = dict.fromkeys(self.destinations)
            for name in remove:
                if name not in left:
                    raise JumpMQError(f"'{name}' is not bound")
                del left[name]
            names = {*left, *(_weighted(one)[0] for one in add)}
            return replace(self, destinations=tuple(sorted(names, key=partial(modulus_place, function=self.function))))
        ring = HashRing.restore(self.ring.state())
        try:
            for name in remove:
                ring.remove(name)
            for one in add:
                ring.add(*_weighted(one))
        except (KeyError, ValueError) as error:
            raise JumpMQError(str(error.args[0])) from None
        return replace(self, ring=ring, destinations=tuple(ring.names))

    @property
    def weights(self) -> dict[str, int]:
        """Weights by destination; all 1 for a modulus hash exchange."""
        return dict(self.ring.destinations) if self.ring is not None else dict.fromkeys(self.destinations, 1)

    def route(self, keys: pa.Array) -> pa.Array:
        """Return the destination of each key; null for an exchange without destinations.

        Keys are hashed as the broker hashes them in messages. Text and octets stand for a routing key, or for a header
        or property of text; integers, booleans and floats for a header; timestamps for a header or for the property
        ``timestamp``, whichever the exchange hashes. A null stands for a message without the header or property.

        Raises:
            JumpMQError: keys of this type are not hashed.
        """
        if not self.destinations:
            return pa.nulls(len(keys), pa.string())
        return pa.DictionaryArray.from_arrays(self.places(keys), pa.array(self.destinations)).cast(pa.string())

    def places(self, keys: pa.Array) -> pa.Array:
        """Return the destination of each key as an index into ``destinations``, which must not be empty.

        Raises:
            JumpMQError: keys of this type are not hashed.
        """
        try:
            if self.ring is None:
                return modulus_array(self._octets(keys), len(self.destinations), self.function)
            if (convert := self._conversion(keys.type)) is None:
                return self.ring.route_array(keys).indices
        except TypeError:
            raise JumpMQError(
                f"a key must be text, octets, a number, true or false, or a timestamp, not {keys.type}"
            ) from None
        return pa.array(self.ring.route_index(_converted(keys, convert, MISSING)), pa.int32())

    def places_of_messages(self, properties: pa.Array) -> pa.Array:
        """Return the destination indexes of messages, by the hashed header or property in encoded properties."""
        return self.places_of(self.hashed_of(properties))

    def places_of(self, keys: list[bytes | int | None]) -> pa.Array:
        """Return the destination indexes of keys from :func:`jumpmq.hashing.header_key`; None for a missing key."""
        if self.ring is None:
            octets = [b"" if key is None else _digits(key) for key in keys]
            return pa.array(moduli(octets, len(self.destinations), NUMBERS[self.function]), pa.int32())
        return pa.array(self.ring.route_index([MISSING if key is None else key for key in keys]), pa.int32())

    def hashed_of(self, properties: pa.Array) -> list[bytes | int | None]:
        """Return the hash keys of messages from encoded properties; None for a missing header or property."""
        assert self.hashed is not None, "the exchange hashes a header or property"
        kind, name = self.hashed
        place = Properties.place("headers" if kind == "header" else name)
        messages = [Message("", b"", octets or NO_PROPERTIES, b"", False, 0) for octets in properties.to_pylist()]
        missing: Any = None
        return list(hash_keys(messages, place, name.encode() if kind == "header" else b"", missing)[0])

    def shown(self, key: object) -> str:
        """Return a key as text for people."""
        return bytes(key).decode("utf-8", "replace") if isinstance(key, bytes | bytearray) else str(key)

    def _octets(self, keys: pa.Array) -> pa.Array:
        """Return keys as the octets hashed by a modulus hash exchange."""
        if self.hashed is None:
            return keys
        if (convert := self._conversion(keys.type)) is None:
            return pc.fill_null(
                keys, b"" if pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type) else ""
            )
        return pa.array([_digits(key) for key in _converted(keys, convert, b"")], pa.binary())

    def _conversion(self, type_: pa.DataType) -> Callable[[Any], bytes | int] | None:
        """Return the conversion of values to keys; None for text and octets."""
        if pa.types.is_integer(type_):
            return int
        if pa.types.is_boolean(type_):
            return partial(header_key, "t")
        if pa.types.is_floating(type_):
            return partial(header_key, "d")
        if pa.types.is_timestamp(type_):
            return partial(header_key, "T") if self.source.startswith("header") else timestamp_key
        return None


def _converted(keys: pa.Array, convert: Callable[[Any], bytes | int], missing: bytes | int) -> list[bytes | int]:
    """Convert values, neither text nor octets, to keys."""
    if pa.types.is_timestamp(keys.type):
        keys = keys.cast(pa.timestamp("s", keys.type.tz), safe=False).cast(pa.int64())
    return [missing if key is None else convert(key) for key in keys.to_pylist()]


def _digits(key: bytes | int) -> bytes:
    return b"%d" % key if isinstance(key, int) else key


def hashed_by(declared: dict[str, Any]) -> tuple[str, str] | None:
    """Return the header or property that an exchange hashes, as :attr:`Router.hashed`.

    Args:
        declared: the exchange's declaration, as in the management API.
    """
    return _hashed(declared["arguments"]) if _routed_as(declared) in HASHES else None


def _routed_as(declared: dict[str, Any]) -> str:
    """Return the exchange type used for routing: for an exchange that delays messages, its ``x-delayed-type``."""
    kind: str = declared["type"]
    return str(declared.get("arguments", {}).get("x-delayed-type")) if kind == "x-delayed-message" else kind


def _source(arguments: dict[str, Any]) -> str:
    hashed = _hashed(arguments)
    return "routing key" if hashed is None else f"{hashed[0]} '{hashed[1]}'"


def _hashed(arguments: dict[str, Any]) -> tuple[str, str] | None:
    for kind in ("header", "property"):
        if f"hash-{kind}" in arguments:
            return kind, arguments[f"hash-{kind}"]
    return None


def _destination(binding: dict[str, Any]) -> str:
    """Return a binding's destination in the notation of rings."""
    name: str = binding["destination"]
    return name if binding["destination_type"] == "queue" else f"exchange:{name}"


def _weighted(text: str) -> tuple[str, int]:
    """Parse ``NAME`` or ``NAME=WEIGHT``; the name may contain ``=``."""
    name, equals, weight = text.rpartition("=")
    if not equals:
        name, weight = text, "1"
    if not name or not (weight.isascii() and weight.isdigit()):
        raise JumpMQError(f"a queue is added as NAME or NAME=WEIGHT, with a weight from 1, not '{text}'")
    return name, int(weight)
