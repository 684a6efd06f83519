"""Every golden routing key, published over AMQP, arrives in the queue that owns its bucket."""

from collections.abc import Callable

import pytest
from tests.conformance.golden import BUCKETS, vectors
from tests.conformance.rings import Ring, weights
from tests.wire import Basic, Exchange, Queue, WireChannel

VECTORS = vectors("routing_keys")
KEYS = [vector["routing_key"] for vector in VECTORS]
PUBLICATIONS = [(key, None) for key in KEYS]


@pytest.mark.parametrize("buckets", BUCKETS)
def test_consistent_hash(channel: WireChannel, unique: Callable[[str], str], buckets: int) -> None:
    ring = Ring(channel, "x-consistent-hash", weights(buckets), unique)
    assert ring.place(PUBLICATIONS) == [ring.owner(vector["consistent_hash"][str(buckets)]) for vector in VECTORS]


@pytest.mark.parametrize("buckets", [buckets for buckets in BUCKETS if buckets <= 128])
def test_modulus_hash(channel: WireChannel, unique: Callable[[str], str], buckets: int) -> None:
    ring = Ring(channel, "x-modulus-hash", [1] * buckets, unique)
    assert ring.place(PUBLICATIONS) == [vector["modulus_hash"][str(buckets)] for vector in VECTORS]


def test_modulus_hash_over_many_exchanges(
    request: pytest.FixtureRequest, channel: WireChannel, unique: Callable[[str], str]
) -> None:
    """Exchanges as destinations, because 10,000 of them cost a broker far less than 10,000 queues."""
    if request.config.getoption("--nodes") > 1:
        pytest.skip("20,000 definitions, one after the other, take minutes")
    source, prefix = unique("ring"), unique("shard")
    channel.exchange(source, "x-modulus-hash", auto_delete=False)
    bound = 0
    for buckets in (size for size in BUCKETS if size > 128):
        for number in range(bound, buckets):
            shard = f"{prefix}-{number:05}"
            channel.send(Exchange.Declare(exchange=shard, exchange_type="fanout", nowait=True))
            channel.send(Exchange.Bind(source=source, destination=shard, nowait=True))
        bound = buckets
        expected = [vector["modulus_hash"][str(buckets)] for vector in VECTORS]
        _consume_from(channel, prefix, set(expected))
        for number, key in enumerate(KEYS):
            channel.publish(source, key, str(number).encode())
        places = {int(arrived.body): int(arrived.method.consumer_tag) for arrived in channel.take(len(KEYS))}
        assert [places[number] for number in range(len(KEYS))] == expected
    channel.call(Exchange.Delete(exchange=source))


def _consume_from(channel: WireChannel, prefix: str, shards: set[int]) -> None:
    """Consume from the given shards, through a queue per shard, without a second consumer."""
    for shard in sorted(shards):
        queue = f"{prefix}-{shard:05}"
        if channel.call(Queue.Declare(queue=queue, exclusive=True)).consumer_count == 0:
            channel.send(Queue.Bind(queue=queue, exchange=queue, nowait=True))
            channel.send(Basic.Consume(queue=queue, consumer_tag=str(shard), no_ack=True, nowait=True))
