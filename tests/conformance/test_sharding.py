"""The document of RabbitMQ's sharding plugin, sentence by sentence; docstrings quote it."""

from collections.abc import Callable, Iterator

import pytest
from pamqp.base import Frame
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Content, Exchange, Queue, WireChannel

from jumpmq.testing import BrokerProcess, RabbitMQ

Name = Callable[[str], str]
MODULUS = "x-modulus-hash"


@pytest.fixture(autouse=True)
def one_node(request: pytest.FixtureRequest) -> None:
    """Skip tests that count the shards of a single node."""
    if request.config.getoption("--nodes") > 1:
        pytest.skip("there are so many shards on each node")


class Images:
    """A durable exchange named after its test, and its sharding policy."""

    def __init__(self, channel: WireChannel, operator: Operator, unique: Name) -> None:
        self.channel = channel
        self.operator = operator
        self.name = unique("images")
        self.policy = unique("images-shard")

    def declare(self, exchange_type: str = MODULUS, *, durable: bool = True) -> "Images":
        self.channel.exchange(self.name, exchange_type, durable=durable, auto_delete=False)
        return self

    def shard(self, per_node: int, routing_key: str | None = None, **definition: object) -> "Images":
        """Set the policy, and wait for its shards."""
        key = {} if routing_key is None else {"routing-key": routing_key}
        settings = {"shards-per-node": per_node, **key, **definition}
        self.operator.set_policy(self.policy, f"^{self.name}$", settings, apply_to="exchanges")
        return self

    def await_shards(self, number: int) -> None:
        until(lambda: list(self.operator.shards(self.name)) == list(range(number)))

    def await_bindings(self, *bound: tuple[int, str]) -> None:
        until(lambda: self.operator.bound(self.name) == list(bound))

    def shard_name(self, number: int) -> str:
        return self.operator.shard(self.name, number)

    def publish(self, *keys: str) -> None:
        """Publish messages with their routing keys as bodies. They are in the shards on return."""
        self.channel.confirm_select()
        for key in keys:
            self.channel.publish(self.name, key, key.encode())
        self.channel.wait_for_confirms()

    def bodies(self, number: int) -> list[bytes]:
        return self.channel.bodies(self.shard_name(number))

    def consumers(self, number: int) -> int:
        return int(self.channel.call(Queue.Declare(queue=self.shard_name(number), passive=True)).consumer_count)


@pytest.fixture
def images(channel: WireChannel, operator: Operator, unique: Name) -> Iterator[Images]:
    """An undeclared exchange, deleted with all shards at the end."""
    images = Images(channel, operator, unique)
    yield images
    names = [queue["name"] for queue in operator.shards(images.name).values()]
    operator.leave()
    last = channel.connection.channel()
    last.call(Exchange.Delete(exchange=images.name))
    for name in names:
        last.call(Queue.Delete(queue=name))


# --- Overview, Usage ---


def test_usage(images: Images) -> None:
    """'This will create 2 sharded queues per node in the cluster, and will bind those queues using the "1234" routing
    key.'
    """
    images.declare("direct").shard(2, "1234")
    images.await_bindings((0, "1234"), (1, "1234"))
    images.await_shards(2)


def test_the_policy_may_come_before_the_exchange(images: Images) -> None:
    """'once you define an exchange as sharded, then the supporting queues will be automatically created'"""
    images.shard(2).declare()
    images.await_bindings((0, ""), (1, ""))
    images.await_shards(2)


def test_messages_are_partitioned(images: Images) -> None:
    """'messages will be sharded across them', and each is 'routed to at most one queue'."""
    images.declare().shard(3).await_bindings((0, ""), (1, ""), (2, ""))
    keys = [str(number) for number in range(60)]
    images.publish(*keys)
    found = [images.bodies(number) for number in range(3)]
    assert all(found)
    assert sorted(key for bodies in found for key in bodies) == sorted(key.encode() for key in keys)


@pytest.mark.parametrize("durable", [True, False])
def test_shards_are_classic_queues_as_durable_as_their_exchange(images: Images, durable: bool) -> None:
    """'Sharding performed by this plugin makes sense for non-replicated classic queues only.'"""
    images.declare(durable=durable).shard(1).await_shards(1)
    (shard,) = images.operator.shards(images.name).values()
    assert (shard["type"], shard["durable"], shard["exclusive"], shard["auto_delete"], shard["arguments"]) == (
        "classic", durable, False, False, {},
    )  # fmt: skip


# --- Messages Distribution Between Shards ---


def test_hash_mod_n(images: Images) -> None:
    """'it will apply a Hash mod N to pick the queue where to route the message, where N is the number of queues bound
    to the exchange': the hash is Erlang's `phash2`, and queues count in order of their names.
    """
    images.declare().shard(4).await_bindings(*[(number, "") for number in range(4)])
    images.publish("a", "b", "c", "1234", "images")
    assert [images.bodies(number) for number in range(4)] == [[b"images"], [], [b"a", b"b", b"c", b"1234"], []]


def test_the_modulus_ignores_the_routing_key_of_the_policy(images: Images) -> None:
    """'If you use the "x-modulus-hash" exchange, then the routing key will be ignored as well.'"""
    images.declare().shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.publish("a", "b", "c", "d", "e", "f")
    assert all([images.bodies(0), images.bodies(1)])


def test_other_exchanges_may_be_sharded(images: Images) -> None:
    """'There are other exchanges with similar behaviour': the consistent hash exchange takes the key as a weight."""
    images.declare("x-consistent-hash").shard(2, "1").await_bindings((0, "1"), (1, "1"))
    images.publish(*[str(number) for number in range(40)])
    assert sorted(map(bool, (images.bodies(0), images.bodies(1)))) == [True, True]


def test_even_distribution_depends_on_the_variability_of_keys(images: Images) -> None:
    """'the larger the set of routing keys is, the more even will message distribution between shards be'"""
    images.declare().shard(4).await_bindings(*[(number, "") for number in range(4)])
    images.publish(*[f"image-{number}" for number in range(4000)])
    counts = [images.channel.ready(images.shard_name(number)) for number in range(4)]
    assert sum(counts) == 4000
    assert max(counts) < 1.15 * min(counts)


def test_one_key_one_shard(images: Images) -> None:
    """'If all messages had the same routing key, they would all end up on the same shard.'"""
    images.declare().shard(4).await_bindings(*[(number, "") for number in range(4)])
    images.publish(*["same"] * 50)
    assert sorted(len(images.bodies(number)) for number in range(4)) == [0, 0, 0, 50]


# --- About the routing-key policy definition ---


def test_a_direct_exchange_routes_the_policys_key_only(images: Images) -> None:
    """'for a direct exchange, only messages that are published with the routing key 1234 will be routed to the sharded
    queues'
    """
    images.declare("direct").shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.publish("other", "1234")
    assert [images.bodies(0), images.bodies(1)] == [[b"1234"], [b"1234"]]


def test_a_fanout_exchange_ignores_the_key(images: Images) -> None:
    """'If you decide to use a fanout exchange for sharding, then the 1234 routing key, while used during binding, will
    be ignored by the exchange.'
    """
    images.declare("fanout").shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.publish("other")
    assert [images.bodies(0), images.bodies(1)] == [[b"other"], [b"other"]]


@pytest.mark.parametrize("exchange_type", ["direct", "fanout", "topic", "headers", MODULUS])
def test_the_routing_key_is_optional(images: Images, exchange_type: str) -> None:
    """'The routing-key policy definition is optional.'"""
    images.declare(exchange_type).shard(1).await_bindings((0, ""))


# --- Changes ---


def test_raising_adds_and_lowering_keeps(images: Images) -> None:
    images.declare("direct").shard(1, "1234").await_shards(1)
    images.shard(3, "1234").await_bindings((0, "1234"), (1, "1234"), (2, "1234"))
    images.publish("1234")
    images.shard(1, "1234").publish("1234")
    assert [images.bodies(number) for number in range(3)] == [[b"1234", b"1234"]] * 3
    images.await_bindings((0, "1234"), (1, "1234"), (2, "1234"))


def test_a_new_routing_key_binds_anew(images: Images) -> None:
    images.declare("direct").shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.shard(2, "5678").await_bindings((0, "5678"), (1, "5678"))
    images.shard(2).await_bindings((0, ""), (1, ""))
    images.shard(3, "1234").await_bindings((0, "1234"), (1, "1234"), (2, "1234"))


def test_what_was_left_by_a_lower_number_keeps_its_binding(images: Images) -> None:
    images.declare("direct").shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.shard(1, "1234").shard(1, "5678").await_bindings((0, "5678"), (1, "1234"))


def test_clearing_the_policy_unbinds_and_keeps_the_queues(images: Images) -> None:
    images.declare("direct").shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))
    images.publish("1234")
    images.operator.clear_policy(images.policy)
    images.await_bindings()
    assert [images.bodies(0), images.bodies(1)] == [[b"1234"], [b"1234"]]
    images.shard(2, "1234").await_bindings((0, "1234"), (1, "1234"))


def test_an_exchange_leaves_its_shards(images: Images) -> None:
    images.declare("fanout").shard(2).await_bindings((0, ""), (1, ""))
    images.publish("kept")
    images.channel.call(Exchange.Delete(exchange=images.name))
    assert [images.bodies(0), images.bodies(1)] == [[b"kept"], [b"kept"]]
    images.declare("fanout").await_bindings((0, ""), (1, ""))


def test_an_exchange_deleted_with_its_last_binding_goes_with_the_policy(images: Images) -> None:
    images.channel.exchange(images.name, "fanout")
    images.shard(1).await_bindings((0, ""))
    images.operator.clear_policy(images.policy)
    until(lambda: images.operator.ask("GET", "exchanges", "/", images.name).status_code == 404)
    images.await_shards(1)


def test_a_queue_of_a_shards_name_becomes_the_shard(images: Images) -> None:
    images.channel.queue(images.shard_name(0), durable=False, exclusive=False, arguments={"x-max-length": 7})
    images.declare().shard(2).await_bindings((0, ""), (1, ""))
    assert [shard["durable"] for shard in images.operator.shards(images.name).values()] == [False, True]


def test_a_predeclared_exchange_may_be_sharded(images: Images) -> None:
    images.name = "amq.fanout"
    images.shard(1).await_bindings((0, ""))
    images.publish("x")
    assert images.bodies(0) == [b"x"]
    images.operator.clear_policy(images.policy)
    images.await_bindings()
    images.channel.call(Queue.Delete(queue=images.shard_name(0)))
    images.name = "of-nobody"


def test_only_a_policy_for_exchanges_shards(images: Images) -> None:
    images.declare()
    images.operator.set_policy(images.policy, f"^{images.name}$", {"shards-per-node": 1}, apply_to="queues")
    assert images.operator.shards(images.name) == {}


def test_the_queue_master_locator_is_ignored(images: Images) -> None:
    """'Shard queues declaration by this plugin will ignore queue master locator policy, if any.'"""
    images.shard(2, **{"queue-master-locator": "random"}).declare()
    images.await_shards(2)
    assert {shard["node"] for shard in images.operator.shards(images.name).values()} == {images.operator.node}


# --- Consuming From a Sharded [Pseudo-]Queue ---


def test_consuming_from_the_pseudo_queue(images: Images) -> None:
    """'if you have a shard called images, then you can directly consume from a queue called images'; 'Therefore if
    there is a partition with 3 queues, it is assumed that there are at least 3 consumers to get all the messages from
    those queues.'
    """
    images.declare().shard(3).await_bindings((0, ""), (1, ""), (2, ""))
    keys = [str(number) for number in range(30)]
    images.publish(*keys)
    for number in range(3):
        images.channel.consume(images.name, f"consumer {number}", no_ack=True)
    deliveries = images.channel.take(len(keys))
    assert {delivery.method.consumer_tag for delivery in deliveries} == {f"consumer {number}" for number in range(3)}
    assert {delivery.body.decode() for delivery in deliveries} == set(keys)


def test_a_shard_keeps_its_order(images: Images) -> None:
    """'Total ordering of messages between shards is not defined': within one it is."""
    images.declare().shard(2).await_bindings((0, ""), (1, ""))
    keys = [str(number) for number in range(50)]
    images.publish(*keys)
    for number in range(2):
        bodies = images.bodies(number)
        assert bodies == [key.encode() for key in keys if key.encode() in bodies]


def test_the_shard_with_the_fewest_consumers_is_consumed_from(images: Images, request: pytest.FixtureRequest) -> None:
    """'The plugin will choose the queue from the shard with the least amount of consumers'; of several, the first.

    With workers, first one at the client's own worker: which one has how many is not known there.
    """
    several = request.config.getoption("workers") > 1

    def counts() -> list[int]:
        found = [images.consumers(number) for number in range(3)]
        return sorted(found, reverse=True) if several else found

    images.declare().shard(3).await_shards(3)
    images.channel.consume(images.shard_name(0), "direct")
    for tag in ("first", "second", "third"):
        images.channel.consume(images.name, tag)
    assert counts() == [2, 1, 1]
    images.channel.call(Basic.Cancel(consumer_tag="first"))
    images.channel.call(Basic.Cancel(consumer_tag="second"))
    images.channel.consume(images.name, "fourth")
    assert counts() == [2, 1, 0] or (several and counts() == [1, 1, 1])


def test_a_burst_of_consumers_spreads_evenly(images: Images, broker: BrokerProcess) -> None:
    """'if your client issue many basic.consume commands without too much time in between, it might happen that the
    plugin assigns the consumers to queues in an uneven way.' Not here.
    """
    images.declare().shard(7).await_shards(7)
    for number in range(1000):
        images.channel.send(Basic.Consume(queue=images.name, consumer_tag=str(number), nowait=True))
    counts = [images.consumers(number) for number in range(7)]
    assert sum(counts) == 1000
    if broker.name == "JumpMQ":
        assert max(counts) - min(counts) <= 1


def body_of(message: Content | None) -> bytes | None:
    return None if message is None else message.body


def test_getting_from_the_pseudo_queue(broker: BrokerProcess, images: Images) -> None:
    images.declare("fanout").shard(2).await_bindings((0, ""), (1, ""))
    images.publish("x")
    assert body_of(images.channel.get(images.name)) == b"x"
    if broker.name == "RabbitMQ":  # chooses the shard with the fewest consumers
        assert images.channel.get(images.name) is None
        images.channel.consume(images.shard_name(0), "busy")
    assert body_of(images.channel.get(images.name)) == b"x"
    assert images.channel.get(images.name) is None


def test_a_shard_deleted_is_passed_over(images: Images) -> None:
    images.declare().shard(2).await_shards(2)
    images.channel.call(Queue.Delete(queue=images.shard_name(0)))
    images.channel.consume(images.name, "x")
    assert images.consumers(1) == 1


# --- the other methods ---


def test_declaring_the_pseudo_queue_is_answered_with_its_own_name_here_only(
    broker: BrokerProcess, images: Images
) -> None:
    """'consumers must not declare a queue with the same name as the sharded pseudo-queue prior to consuming': most
    clients do, and RabbitMQ answers with the name of shard 0, from which all of them then consume."""
    images.declare("fanout").shard(2).await_bindings((0, ""), (1, ""))
    images.publish("x")
    own = broker.name == "JumpMQ"
    for declaration in (Queue.Declare(queue=images.name, passive=True), Queue.Declare(queue=images.name, durable=True)):
        answer = images.channel.call(declaration)
        expected = (images.name, 2, 0) if own else (images.shard_name(0), 1, 0)
        assert (answer.queue, answer.message_count, answer.consumer_count) == expected
    with pytest.raises(ChannelClosed) as refused:
        images.channel.call(Queue.Declare(queue=images.name, durable=False))
    assert (refused.value.code, refused.value.text) == (
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{images.shard_name(0)}' in vhost '/': "
        "received 'false' but current is 'true'",
    )


@pytest.mark.parametrize("broker", ["jumpmq"], indirect=True)
def test_who_declares_and_consumes_what_was_declared_is_spread(images: Images) -> None:
    images.declare("fanout").shard(3).await_bindings((0, ""), (1, ""), (2, ""))
    for number in range(3):
        answer = images.channel.call(Queue.Declare(queue=images.name, passive=True))
        images.channel.consume("" if number else answer.queue, str(number))
    assert [images.consumers(number) for number in range(3)] == [1, 1, 1]
    answer = images.channel.call(Queue.Declare(queue=images.name, passive=True))
    assert answer.consumer_count == 3


@pytest.mark.parametrize("broker", ["jumpmq"], indirect=True)
def test_no_queue_is_made_that_would_hide_behind_the_shards(images: Images) -> None:
    images.channel.queue(images.name)  # before the exchange is sharded
    images.declare("fanout").shard(1).await_bindings((0, ""))
    hidden = [one for one in images.operator.see("warnings") if one["kind"] == "hidden-queue"]
    assert [one["name"] for one in hidden] == [images.name]
    refused = images.operator.ask("PUT", "queues", "/", images.name, json={})
    assert refused.status_code == 400
    assert "would be hidden behind its shards" in refused.json()["reason"]


@pytest.mark.parametrize("broker", ["jumpmq"], indirect=True)
def test_messages_are_got_from_all_shards_in_turn(images: Images) -> None:
    images.declare("fanout").shard(3).await_bindings((0, ""), (1, ""), (2, ""))
    for body in ("1", "2"):
        images.publish(body)
    got = [body_of(images.channel.get(images.name)) for _ in range(7)]
    assert got == [b"1"] * 3 + [b"2"] * 3 + [None], "each shard once, then again"


def test_the_pseudo_queue_goes_before_a_queue_of_its_name(images: Images) -> None:
    images.channel.queue(images.name)
    images.channel.publish("", images.name, b"in the queue")
    images.declare("fanout").shard(1).await_bindings((0, ""))
    assert images.channel.get(images.name) is None


@pytest.mark.parametrize("broker", ["jumpmq"], indirect=True)
@pytest.mark.parametrize(
    ("operation", "method"),
    [
        ("bind", lambda name: Queue.Bind(queue=name, exchange="amq.direct", routing_key="k")),
        ("unbind", lambda name: Queue.Unbind(queue=name, exchange="amq.direct", routing_key="k")),
        ("purge", lambda name: Queue.Purge(queue=name)),
        ("delete", lambda name: Queue.Delete(queue=name)),
    ],
)
def test_what_cannot_be_done_to_the_pseudo_queue(
    images: Images, operation: str, method: Callable[[str], Frame]
) -> None:
    """RabbitMQ 3.10.8 means to say the same, and closes the connection with 541 INTERNAL_ERROR in trying."""
    images.declare().shard(2).await_shards(2)
    with pytest.raises(ChannelClosed) as refused:
        images.channel.call(method(images.name))
    assert (refused.value.code, refused.value.text) == (
        406,
        f'PRECONDITION_FAILED - Can\'t {operation} sharded queue: <<"{images.name}">>',
    )


def test_shards_themselves_are_queues_like_others(images: Images) -> None:
    images.declare().shard(1).await_shards(1)
    shard = images.shard_name(0)
    images.channel.bind(shard, "amq.direct", shard)
    images.channel.call(Queue.Unbind(queue=shard, exchange="amq.direct", routing_key=shard))
    images.channel.call(Queue.Purge(queue=shard))
    images.channel.call(Queue.Delete(queue=shard))
    assert images.operator.shards(images.name) == {}


def test_a_modulus_hash_exchange_hashes_a_header_here_only(
    channel: WireChannel, unique: Name, broker: BrokerProcess
) -> None:
    """RabbitMQ ignores the argument: ``docs/differences.md``."""
    exchange = channel.exchange(unique("modulus"), MODULUS, arguments={"hash-header": "device"})
    queues = [channel.queue(unique("queue")) for _ in range(4)]
    for queue in queues:
        channel.bind(queue, exchange)
    channel.confirm_select()
    for device in range(20):
        channel.publish(exchange, "same", properties=Basic.Properties(headers={"device": str(device)}))
    channel.wait_for_confirms()
    found = sorted(channel.ready(queue) for queue in queues)
    assert found == [0, 0, 0, 20] if isinstance(broker, RabbitMQ) else (sum(found) == 20 and found[0])
