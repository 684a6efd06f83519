"""Spark's routing is the broker's: on every golden vector, and on a million random keys of every kind."""

import datetime
import json
import random
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.generating import examples
from tests.topology.built import Built

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.spark import JumpMQError, Router
from jumpmq.topology import AddVirtualHost, ConsistentHashExchange, Topology

KEYS = examples(1_000_000)
VECTORS = Path(__file__).parents[1] / "data"
WEIGHTS = {"a": 1, "b": 3, "c": 2, "gone": 2, "d": 7}


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    rng = random.Random(7)
    return [rng.randbytes(rng.randrange(1, 24)) for _ in range(KEYS)]


def built() -> Built:
    topology = Topology("jumpmq@test")
    topology.apply(AddVirtualHost("/"))
    return Built(topology)


def both(kind: str, arguments: dict[str, str], weights: dict[str, int] = WEIGHTS) -> tuple[Built, Router]:
    """A broker's exchange with an unbound queue, and Spark's router of its ring or its definitions."""
    made = built()
    exchange = made.exchange("e", kind, arguments)
    for queue, weight in weights.items():
        made.queue(queue)
        made.bind("e", queue, str(weight))
    if "gone" in weights:
        made.unbind("e", "gone", str(weights["gone"]))
    bindings = [
        {"destination": queue, "destination_type": "queue", "routing_key": str(weight)}
        for queue, weight in weights.items()
        if queue != "gone"
    ]
    router = Router._built({"name": "e", "type": kind, "arguments": arguments}, bindings)
    if isinstance(exchange, ConsistentHashExchange):
        router = Router(exchange.ring, tuple(exchange.ring.names), router.source)
    return made, router


def agree(made: Built, router: Router, messages: list[Message], column: pa.Array) -> None:
    """The broker and Spark choose the same queue for every message."""
    for place, one in enumerate(messages):
        one.seq = place
    runs = made.vhost.route("e", messages).queues
    names = pa.array([queue.name for queue in runs])
    decided = np.full(len(messages), -1)
    for number, run in enumerate(runs.values()):
        decided[np.fromiter(map(attrgetter("seq"), run), np.int64, len(run))] = number
    assert sum(map(len, runs.values())) == len(messages)
    assert decided.min() >= 0
    assert router.route(column).cast(pa.string()).equals(names.take(pa.array(decided)))
    assert len(names) == len(router.destinations)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("x-consistent-hash", {}),
        ("x-consistent-hash", {"ring-removal": "shift"}),
        ("x-consistent-hash", {"hash-function": "xxh64"}),
        ("x-consistent-hash", {"hash-function": "murmur3"}),
        ("x-modulus-hash", {}),
        ("x-modulus-hash", {"hash-function": "murmur2"}),
    ],
    ids=["consistent", "shift", "xxh64", "murmur3", "modulus", "modulus of murmur2"],
)
def test_a_million_routing_keys(keys: list[bytes], kind: str, arguments: dict[str, str]) -> None:
    made, router = both(kind, arguments)
    agree(made, router, [Message("e", key, b"\0\0", b"") for key in keys], pa.array(keys, pa.binary()))


@pytest.mark.parametrize("source", ["header", "header, number", "message_id", "correlation_id", "timestamp"])
def test_a_million_headers_and_properties(keys: list[bytes], source: str) -> None:
    numbers = range(0, 7 * KEYS, 7)
    column = pa.array(keys, pa.binary())
    if source == "timestamp":
        sent = [b"\x00\x40" + (one * 60).to_bytes(8) for one in numbers]
        column = pa.array([one * 60 for one in numbers], pa.timestamp("s", "UTC"))
    elif source == "header, number":
        sent = [b"\x20\x00\x00\x00\x00\x07\x01hI" + one.to_bytes(4) for one in numbers]
        column = pa.array(numbers, pa.int32())
    elif source == "header":
        sent = [b"\x20\x00" + (7 + len(key)).to_bytes(4) + b"\x01hS" + len(key).to_bytes(4) + key for key in keys]
    else:
        flag = {"message_id": b"\x00\x80", "correlation_id": b"\x04\x00"}[source]
        sent = [flag + bytes((len(key),)) + key for key in keys]
    messages = [Message("e", b"", octets, b"") for octets in sent]
    argument = {"hash-header": "h"} if source.startswith("header") else {"hash-property": source}
    for function in ("phash2", "xxh64"):
        made, router = both("x-consistent-hash", argument | {"hash-function": function})
        agree(made, router, messages, column)
    for function in ("phash2", "murmur2"):
        made, router = both("x-modulus-hash", argument | {"hash-function": function})
        agree(made, router, messages, column)


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
@pytest.mark.parametrize(
    ("type_", "values", "column"),
    [
        ("t", [True, False], pa.bool_()),
        ("d", [0.5, -1.25, 1e300], pa.float64()),
        ("T", [0, 1_700_000_000], pa.timestamp("s", "UTC")),
        ("l", [-1, 1 << 40], pa.int64()),
        ("V", [None], pa.string()),
    ],
)
def test_headers_of_other_types(kind: str, type_: str, values: list[Any], column: pa.DataType) -> None:
    made, router = both(kind, {"hash-header": "h"}, {f"q{number}": 1 for number in range(50)})
    for value in values:
        octets = Properties(headers=[Field("h", type_, value)]).encode()
        message = Message("e", b"k", octets, b"")
        ((queue, _),) = made.vhost.route("e", [message]).queues.items()
        shown = datetime.datetime.fromtimestamp(value, datetime.UTC) if type_ == "T" else value
        assert router.route(pa.array([shown], column)).to_pylist() == [queue.name]


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def test_every_golden_vector() -> None:
    vectors = lines("routing_keys")
    keys = pa.array([one["routing_key"] for one in vectors])
    for buckets in vectors[0]["consistent_hash"]:
        expected = [f"q{one['consistent_hash'][buckets] + 1}" for one in vectors]
        assert Router.even(int(buckets)).route(keys).to_pylist() == expected
        names = tuple(f"{number:05}" for number in range(int(buckets)))
        if buckets in vectors[0]["modulus_hash"]:
            expected = [names[one["modulus_hash"][buckets]] for one in vectors]
            assert Router(None, names).route(keys).to_pylist() == expected


def test_every_golden_header_of_text() -> None:
    vectors = [one for one in lines("headers") if one["type"] in "Sx" and isinstance(one["value"], str)]
    keys = pa.array([bytes.fromhex(one["value"]) for one in vectors], pa.binary())
    assert len(vectors) > 10
    for buckets in vectors[0]["consistent_hash"]:
        expected = [f"q{one['consistent_hash'][buckets] + 1}" for one in vectors]
        assert Router.even(int(buckets)).route(keys).to_pylist() == expected


def test_keys_of_a_type_that_is_not_hashed() -> None:
    with pytest.raises(JumpMQError, match="a key must be text, octets, a number, true or false, or a timestamp, not"):
        Router.even(2).route(pa.array([[1]]))
