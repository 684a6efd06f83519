"""A sharded exchange of streams: its shards are read in parallel, a key always from the same shard."""

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.spark.streams.published import Query, rows

import jumpmq

KEYS = [str(number) for number in range(100)]


@pytest.mark.parametrize("exchange_type", ["x-modulus-hash", "x-consistent-hash"])
def test_a_sharded_exchange_is_read_by_offsets(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, api: API, exchange_type: str
) -> None:
    policy = {"pattern": "^sharded$", "definition": {"shards-per-node": 3, "queue-type": "stream"}}
    assert api.request("PUT", "policies", "/", "shards", json=policy).status_code == 201
    channel.exchange_declare("sharded", exchange_type, durable=True)
    channel.confirm_delivery()
    for body in (b"1", b"2"):
        for key in KEYS:
            channel.basic_publish("sharded", key, body, mandatory=True)
    query = Query(broker, exchange="sharded", startingOffsets="earliest")
    found = query.batch(150) + query.batch(150)
    assert query.batch() == []
    by_key = {key: [row for row in found if row["routing_key"] == key.encode()] for key in KEYS}
    assert all([row["body"] for row in mine] == [b"1", b"2"] for mine in by_key.values())
    assert all(len({row["queue"] for row in mine}) == 1 for mine in by_key.values())
    assert len({row["queue"] for row in found}) == 3
    assert rows(broker, exchange="sharded") == sorted(found, key=lambda row: (row["queue"], row["seq"]))
