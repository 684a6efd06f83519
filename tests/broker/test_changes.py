"""Clients during a change of definitions in steps, such as a policy that shards an exchange."""

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.http.api import API
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Queue, WireChannel, WireConnection, login

import jumpmq
from jumpmq.topology import Change, proposals
from jumpmq.topology.changes import preparing

Name = Callable[[str], str]
SHARDS = 40


@pytest.fixture
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve unrelated work after every step of a change."""
    monkeypatch.setattr(proposals, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(preparing, "FEW", 0)


def shard(api: API, exchange: str, count: int, key: str) -> None:
    policy = {"pattern": f"^{exchange}$", "definition": {"shards-per-node": count, "routing-key": key}}
    assert api.request("PUT", "policies", "/", exchange, json=policy).status_code in (201, 204)


@pytest.mark.usefixtures("slowly")
def test_who_publishes_while_the_key_of_shards_changes_loses_nothing(
    api: API, channel: WireChannel, unique: Name
) -> None:
    """A publisher loses no message while the key of shards changes: each shard gets a message once, by either key."""
    exchange = unique("x")
    channel.exchange(exchange, "direct")
    shard(api, exchange, SHARDS, "even")
    changed = threading.Event()

    def change() -> None:
        for turn in range(6):
            shard(api, exchange, SHARDS, ("odd", "even")[turn % 2])
        changed.set()

    changing = threading.Thread(target=change)
    changing.start()
    channel.confirm_select()
    published = 0
    properties = Basic.Properties(headers={"CC": ["odd"]})
    while not changed.is_set():
        channel.publish(exchange, "even", b"", properties)
        channel.call(Basic.Qos())  # without a wait for the disk, which the change waits for too
        published += 1
    changing.join()
    channel.wait_for_confirms()
    assert published > 10
    for number in range(SHARDS):
        name = f"sharding: {exchange} - {api.get('overview')['node']} - {number}"
        assert channel.ready(name) == published


@pytest.fixture
def under_way(api: API, monkeypatch: pytest.MonkeyPatch, unique: Name) -> Iterator[threading.Event]:
    """A change of definitions is under way, until the event is set; or till the end of the test."""
    begun, go_on = threading.Event(), threading.Event()
    prepare = preparing.Preparation.prepare

    def prepare_later(self: preparing.Preparation, changes: Iterator[Change]) -> Iterator[None]:
        yield from prepare(self, changes)
        begun.set()
        while not go_on.is_set():
            yield

    monkeypatch.setattr(proposals, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(preparing.Preparation, "prepare", prepare_later)
    asking = threading.Thread(target=shard, args=(api, unique("x"), 1, ""))
    asking.start()
    begun.wait()
    yield go_on
    go_on.set()
    asking.join()


def test_methods_behind_a_declaration_that_waits_are_answered_in_order(
    under_way: threading.Event, broker: jumpmq.RunningBroker, channel: WireChannel, unique: Name
) -> None:
    queue = unique("q")
    channel.send(Queue.Declare(queue=queue))
    channel.publish("", queue, b"behind it")
    channel.send(Basic.Get(queue=queue, no_ack=True))
    with login(broker.port) as connection:
        served = connection.channel()
        assert served.is_silent(0.05)
        assert channel.is_silent(0.05)
        assert not connection.finds(Queue.Declare(queue=queue, passive=True))
    under_way.set()
    assert isinstance(channel.next(), Queue.DeclareOk)
    message = channel.next()
    assert message.body == b"behind it"


def test_a_refusal_that_had_to_wait_closes_the_channel_that_asked(
    under_way: threading.Event, connection: WireConnection, unique: Name
) -> None:
    refused, other = connection.channel(), connection.channel()
    refused.send(Queue.Bind(queue=unique("lost"), exchange="amq.fanout"))
    other.send(Basic.Qos())
    under_way.set()
    assert isinstance(other.next(), Basic.QosOk)
    with pytest.raises(ChannelClosed) as closed:
        refused.next()
    assert closed.value.code == 404


def test_an_exclusive_queue_that_comes_when_its_connection_is_gone_goes_again(
    under_way: threading.Event, broker: jumpmq.RunningBroker, api: API, connection: WireConnection, unique: Name
) -> None:
    queue = unique("q")
    leaving = login(broker.port, client_properties={"connection_name": queue})
    leaving.channel().send(Queue.Declare(queue=queue, exclusive=True))
    names = {one["client_properties"].get("connection_name"): one["name"] for one in api.get("connections")}
    assert api.request("DELETE", "connections", names[queue]).status_code == 204
    leaving.refusal()
    leaving.hang_up()
    until(lambda: names[queue] not in [one["name"] for one in api.get("connections")])
    under_way.set()
    channel = connection.channel()
    channel.queue(unique("after"))
    assert not connection.finds(Queue.Declare(queue=queue, passive=True))
