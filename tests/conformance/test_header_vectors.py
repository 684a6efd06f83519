"""Every golden header value, of every AMQP field type, arrives in the queue that owns its bucket.

RabbitMQ 4.x hashes a header by its value, as the vectors and JumpMQ: a key keeps its queue after a change of its
integer type. RabbitMQ 3.10.8 hashes the pair of type and value, so that only an absent header agrees.
"""

from collections.abc import Callable

import pytest
from tests.conformance.golden import BUCKETS, vectors
from tests.conformance.rings import Ring, weights
from tests.conformance.typed_fields import field, headers
from tests.wire import WireChannel

from jumpmq.testing import BrokerProcess, RabbitMQ

VECTORS = vectors("headers")
INTEGERS = vectors("jump")
WITHOUT_HEADERS = b"\0\0"


def properties(field_type: str, value: object) -> bytes:
    return WITHOUT_HEADERS if field_type == "missing" else headers(field("hash-on", field_type, value))


def hash_header_ring(channel: WireChannel, unique: Callable[[str], str], buckets: int) -> Ring:
    return Ring(channel, "x-consistent-hash", weights(buckets), unique, {"hash-header": "hash-on"})


def hashes_types(broker: BrokerProcess) -> bool:
    """Return true if the broker hashes a header together with its type."""
    return isinstance(broker, RabbitMQ) and broker.version < (4, 0)


@pytest.mark.parametrize("buckets", BUCKETS)
def test_headers(broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str], buckets: int) -> None:
    ring = hash_header_ring(channel, unique, buckets)
    # RabbitMQ 4.0 closes the connection with 541 for an empty list or table.
    vectors = [
        one for one in VECTORS if broker.name == "JumpMQ" or hashes_types(broker) or one["value"] not in ([], {})
    ]
    places = ring.place([("ignored", properties(vector["type"], vector["value"])) for vector in vectors])
    expected = [ring.owner(vector["consistent_hash"][str(buckets)]) for vector in vectors]
    if hashes_types(broker):
        missing = [number for number, vector in enumerate(vectors) if vector["type"] == "missing"]
        assert [places[number] for number in missing] == [expected[number] for number in missing]
        assert buckets == 1 or places != expected
    else:
        assert places == expected


@pytest.mark.parametrize("buckets", BUCKETS)
def test_integers(broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str], buckets: int) -> None:
    """An integer header is its own key: the vectors of the jump function, published as 64-bit headers."""
    ring = hash_header_ring(channel, unique, buckets)
    places = ring.place([("ignored", properties("l", vector["key"])) for vector in INTEGERS])
    expected = [ring.owner(vector["buckets"][str(buckets)]) for vector in INTEGERS]
    if hashes_types(broker):
        assert buckets == 1 or places != expected
    else:
        assert places == expected


def test_same_integer_in_every_width(broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str]) -> None:
    ring = hash_header_ring(channel, unique, 100)
    places = ring.place([("", properties(field_type, 7)) for field_type in "bBsuIil"])
    assert len(set(places)) == (7 if hashes_types(broker) else 1)


def test_a_text_in_a_header_goes_where_it_goes_as_a_routing_key(
    broker: BrokerProcess, channel: WireChannel, unique: Callable[[str], str]
) -> None:
    """The README restricts "bit for bit" correctly: headers are hashed as in RabbitMQ 4.x, not as in 3.x."""
    texts = [f"customer-{number}" for number in range(50)]
    by_key = Ring(channel, "x-consistent-hash", weights(100), unique)
    by_header = hash_header_ring(channel, unique, 100)
    keys = by_key.place([(text, None) for text in texts])
    assert (by_header.place([("", properties("S", text.encode().hex())) for text in texts]) == keys) == (
        not hashes_types(broker)
    )


@pytest.mark.parametrize("hash_property", ["message_id", "correlation_id"])
@pytest.mark.parametrize("buckets", [7, 100])
def test_textual_properties(
    channel: WireChannel, unique: Callable[[str], str], buckets: int, hash_property: str
) -> None:
    """All versions hash `message_id` and `correlation_id` as a routing key."""
    keys = [vector for vector in vectors("routing_keys") if vector["routing_key"]]
    arguments = {"hash-property": hash_property}
    ring = Ring(channel, "x-consistent-hash", weights(buckets), unique, arguments)
    places = ring.place([("", _property(hash_property, vector["routing_key"])) for vector in keys])
    assert places == [ring.owner(vector["consistent_hash"][str(buckets)]) for vector in keys]


def test_timestamp_property_is_hashed_as_its_decimal_text(channel: WireChannel, unique: Callable[[str], str]) -> None:
    seconds = [0, 1, 99, 1_700_000_000, 2**33]
    by_key = Ring(channel, "x-consistent-hash", weights(100), unique)
    by_timestamp = Ring(channel, "x-consistent-hash", weights(100), unique, {"hash-property": "timestamp"})
    stamps = [("", b"\x00\x40" + second.to_bytes(8, "big")) for second in seconds]
    assert by_timestamp.place(stamps) == by_key.place([(str(second), None) for second in seconds])


@pytest.mark.parametrize("arguments", [{"hash-header": "absent"}, {"hash-property": "message_id"}], ids=str)
def test_whatever_lacks_the_key_goes_to_one_queue(
    channel: WireChannel, unique: Callable[[str], str], arguments: dict[str, str]
) -> None:
    ring = Ring(channel, "x-consistent-hash", weights(16), unique, arguments)
    assert len(set(ring.place([(str(key), None) for key in range(200)]))) == 1


def _property(name: str, text: str) -> bytes:
    flags = {"message_id": b"\x00\x80", "correlation_id": b"\x04\x00"}[name]
    octets = text.encode()
    return flags + bytes([len(octets)]) + octets
