"""`shards` and `consistent_hash_exchange_ring_state`."""

import json
from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Control, Failure, Output

SHARD = "sharding: shard.images - jumpmq@sparrow - "
POLICY = ("set_policy", "images-shard", "^shard.images$", '{"shards-per-node": 2, "routing-key": "1234"}')


@pytest.fixture
def sharded(channel: BlockingChannel, output: Output) -> Iterator[BlockingChannel]:
    """The channel of a client with an exchange of two shards, deleted after the test."""
    output(*POLICY)
    channel.exchange_declare("shard.images", "x-modulus-hash")
    yield channel
    channel.exchange_delete("shard.images")
    for number in range(2):
        channel.queue_delete(f"{SHARD}{number}")


def test_shards_and_their_skew(control: Control, sharded: BlockingChannel) -> None:
    sharded.confirm_delivery()
    for number in range(40):
        sharded.basic_publish("shard.images", str(number), b"x")
    result = control("shards", "--formatter", "json", "shard.images")
    shards = json.loads(result.stdout)
    assert [shard["name"] for shard in shards] == [f"{SHARD}0", f"{SHARD}1"]
    assert sum(shard["messages"] for shard in shards) == 40
    assert [shard["skew"] for shard in shards] == [shard["messages"] / 20 for shard in shards]


def test_a_warning_of_messages_without_a_consumer(control: Control, sharded: BlockingChannel) -> None:
    sharded.basic_consume("shard.images", lambda *_: None)  # from shard 0
    sharded.confirm_delivery()
    for number in range(2):
        sharded.basic_publish("", f"{SHARD}{number}", b"x")
    result = control("-q", "shards", "shard.images")
    assert result.returncode == 0
    assert result.stdout == (
        f"name\tmessages\tconsumers\tshare\tskew\tnode\n{SHARD}0\t1\t1\t0.5\t1.0\tjumpmq@sparrow\n{SHARD}1\t1\t0\t0.5\t1.0\tjumpmq@sparrow\n"
    )
    assert result.stderr == f"Warning: shard '{SHARD}1' has 1 messages and no consumer\n"


def test_shards_of_nothing(failure: Failure) -> None:
    assert failure("shards", "nothing") == (65, "Error:\nExchange 'nothing' does not exist in virtual host '/'\n")


def test_the_ring(channel: BlockingChannel, output: Output) -> None:
    channel.exchange_declare("ring", "x-consistent-hash")
    for queue, weight in (("a", "1"), ("b", "2"), ("c", "1")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "ring", weight)
    assert output("consistent_hash_exchange_ring_state", "ring") == (
        "Inspecting consistent hashing ring state for exchange ring in virtual host '/'...\n"
        "Ring index: 0, queue: 'a'\nRing index: 1, queue: 'b'\nRing index: 2, queue: 'b'\nRing index: 3, queue: 'c'\n"
    )
    channel.queue_unbind("b", "ring", "2")
    assert output("-q", "consistent_hash_exchange_ring_state", "ring") == (
        "Ring index: 0, queue: 'a'\nRing index: 3, queue: 'c'\n"
    )


@pytest.mark.parametrize("exchange", ["nothing", "amq.topic"])
def test_no_ring(failure: Failure, exchange: str) -> None:
    status, said = failure("consistent_hash_exchange_ring_state", exchange)
    assert status == 65
    assert f"'{exchange}'" in said


def test_no_shards(failure: Failure) -> None:
    status, said = failure("shards", "amq.topic")
    assert (status, said) == (65, "Error:\nExchange 'amq.topic' in virtual host '/' is not sharded\n")


def test_a_key_is_explained(channel: BlockingChannel, output: Output, failure: Failure) -> None:
    channel.exchange_declare("explained", "x-consistent-hash")
    for queue in ("x", "y"):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "explained", "1")
    channel.confirm_delivery()
    channel.basic_publish("explained", "acme", b"order")
    said = output("-q", "explain_key", "explained", "acme", "--destinations", "3").splitlines()
    queue = next(name for name in ("x", "y") if channel.queue_declare(name, passive=True).method.message_count)
    assert said[1].endswith(f"of 2 of exchange 'explained' leads to {queue}")
    assert "1 messages ready, 0 unacknowledged" in said
    assert "deliveries: the queue has no consumer" in said
    assert said[-1].startswith("with 3 destinations the key would go to ")
    assert failure("explain_key", "amq.topic", "acme")[1].startswith("Error:\nExchange 'amq.topic' in virtual host '/'")
    for queue in ("x", "y"):
        channel.queue_delete(queue)
    channel.exchange_delete("explained")
