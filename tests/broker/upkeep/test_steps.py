"""Work in steps has the same result as work at once: order, counts, and the state after a crash."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pamqp.frame import marshal
from tests.cli.commands import serving
from tests.http.api import API
from tests.waiting import until
from tests.wire import (
    Basic,
    ChannelClosed,
    Connection,
    ConnectionClosed,
    Exchange,
    Queue,
    Tx,
    WireChannel,
    login,
)

import jumpmq
from jumpmq.amqp import methods as m
from jumpmq.broker.channel import transactions
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.methods import ACTIONS
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.connection.connection import DELETED_AT_ONCE
from jumpmq.broker.timing import BrokerTiming
from jumpmq.broker.upkeep import upkeep
from jumpmq.queues.classic import ClassicQueue
from jumpmq.topology import Change, ChangePrincipal, DeleteQueue, Pending, Topology
from jumpmq.topology.exchanges import Destination
from jumpmq.topology.proposals import STEPS_AT_ONCE
from jumpmq.topology.vhost import VirtualHost

Name = Callable[[str], str]
COUNT = 20_000
"""Number of messages: several steps for any operation."""
BINDINGS = 1000
PERSISTENT = Basic.Properties(delivery_mode=2)


def fill(channel: WireChannel, queue: str, properties: Basic.Properties | None = None) -> None:
    """Publish numbers; on return the broker has received all."""
    octets = b"".join(channel.publication("", queue, b"%d" % number, properties) for number in range(COUNT))
    channel.connection.send(octets)
    while channel.ready(queue) < COUNT:
        pass


def counted(monkeypatch: pytest.MonkeyPatch, method: type[m.Method]) -> list[type[m.Method]]:
    """Return a list that grows with every handled call of a method."""
    acted, act = [], ACTIONS[method]

    def act_and_count(channel: Channel, received: m.Method) -> Waiting | None:
        acted.append(method)
        return act(channel, received)

    monkeypatch.setitem(ACTIONS, method, act_and_count)
    return acted


def numbers(channel: WireChannel, queue: str) -> list[int]:
    """Consume a queue; return the numbers."""
    tag = channel.consume(queue, no_ack=True)
    found = [int(message.body) for message in channel.take(COUNT)]
    channel.call(Basic.Cancel(consumer_tag=tag))
    return found


def test_a_purge_is_answered_when_no_crash_can_undo_it(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("q", durable=True, exclusive=False)
        fill(channel, queue, PERSISTENT)
        assert channel.call(Queue.Purge(queue=queue)).message_count == COUNT
        serve.process.kill()
        serve.process.wait()
    with serving(tmp_path) as serve, login(serve.port) as connection:
        assert connection.channel().ready("q") == 0


def test_an_acknowledged_transaction_is_answered_when_no_crash_can_undo_it(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("q", durable=True, exclusive=False)
        fill(channel, queue, PERSISTENT)
        channel.call(Tx.Select())
        channel.consume(queue)
        channel.take(COUNT)
        channel.send(Basic.Ack(delivery_tag=0, multiple=True))
        channel.call(Tx.Commit())
        serve.process.kill()
        serve.process.wait()
    with serving(tmp_path) as serve, login(serve.port) as connection:
        assert connection.channel().ready("q") == 0


def test_others_are_served_while_a_transaction_commits(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    acted, taken, answered = counted(monkeypatch, m.TxCommit), [0], threading.Event()
    steps = transactions._steps

    def waiting_for_others(channel: Channel, transaction: transactions.Transaction) -> Iterator[None]:
        for _ in steps(channel, transaction):
            yield
            taken[0] += 1
            while not answered.is_set():
                yield

    monkeypatch.setattr(transactions, "TURN", 0)
    monkeypatch.setattr(transactions, "_steps", waiting_for_others)
    queue, copy = channel.queue(unique("q")), channel.queue(unique("copy"))
    fill(channel, queue)
    channel.consume(queue)
    channel.take(COUNT)
    channel.call(Tx.Select())
    for start in range(0, COUNT, 1000):
        many = [channel.publication("", copy, b"%d" % number) for number in range(start, start + 1000)]
        channel.connection.send(b"".join(many))
        channel.call(Basic.Qos())  # no single run of messages
    channel.send(Basic.Ack(delivery_tag=0, multiple=True))
    with login(broker.port) as connection:
        other = connection.channel()
        channel.send(Tx.Commit())
        until(lambda: taken[0] > 0)
        waiting = other.queue(unique("waiting"))
        other.publish("", waiting, b"served meanwhile")
        assert other.bodies(waiting) == [b"served meanwhile"]
        answered.set()
        assert isinstance(channel.next(), Tx.CommitOk)
    assert taken[0] > COUNT // 4096
    assert acted == [m.TxCommit]
    assert numbers(channel, copy) == list(range(COUNT))
    assert channel.ready(queue) == 0


def test_a_transaction_whose_commit_has_begun_is_done_as_a_whole_though_its_connection_goes(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    begun, steps = threading.Event(), transactions._steps

    def only_the_first(channel: Channel, transaction: transactions.Transaction) -> Iterator[None]:
        for _ in steps(channel, transaction):
            yield
            begun.set()
            while not channel.closed:
                yield

    monkeypatch.setattr(transactions, "TURN", 0)
    monkeypatch.setattr(transactions, "_steps", only_the_first)
    queue = channel.queue(unique("q"), exclusive=False)
    with login(broker.port, client_properties={"connection_name": "leaving"}) as connection:
        other = connection.channel()
        other.call(Tx.Select())
        for number in range(10):
            other.publish("", queue, b"%d" % number)
            other.call(Basic.Qos())
        other.send(Tx.Commit())
        until(begun.is_set)
        assert channel.ready(queue) < 10
        api = API(broker.http_url)
        names = {one["client_properties"].get("connection_name"): one["name"] for one in api.get("connections")}
        assert api.request("DELETE", "connections", names["leaving"]).status_code == 204
    until(lambda: channel.ready(queue) == 10)


def test_many_deliveries_of_a_connection_that_closes_return_in_order(
    broker: jumpmq.RunningBroker, channel: WireChannel, unique: Name
) -> None:
    queue = channel.queue(unique("q"))
    waiting = channel.queue(unique("waiting"))
    fill(channel, queue)
    other = channel.connection.channel()
    other.consume(queue)
    other.take(COUNT)
    channel.publish("", waiting, b"served meanwhile")
    other.close()
    assert channel.bodies(waiting) == [b"served meanwhile"]
    assert numbers(channel, queue) == list(range(COUNT))


def test_a_get_while_deliveries_return_gets_the_first(
    monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    acted = counted(monkeypatch, m.BasicGet)
    queue = channel.queue(unique("q"))
    fill(channel, queue)
    other = channel.connection.channel()
    other.consume(queue)
    other.take(COUNT)
    monkeypatch.setattr(upkeep, "SLICE", 0)  # one step at a time
    other.send(Basic.Nack(delivery_tag=0, multiple=True, requeue=True))
    other.close()
    message = channel.get(queue)
    assert message is not None
    assert message.body == b"0"
    assert acted == [m.BasicGet]


def test_a_queue_that_is_deleted_while_a_get_waits_is_not_found(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    queue = channel.queue(unique("q"), exclusive=False)
    monkeypatch.setattr(ClassicQueue, "knows_next", False)
    channel.send(Basic.Get(queue=queue))
    with login(broker.port) as connection:
        other = connection.channel()
        until(lambda: bool(other.call(Queue.Declare(queue=queue, passive=True))))
        other.call(Queue.Delete(queue=queue))
    with pytest.raises(ChannelClosed, match="NOT_FOUND"):
        channel.next()


def test_a_connection_whose_channel_is_closed_while_it_waits_is_served_on(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    queue = channel.queue(unique("q"))
    monkeypatch.setattr(ClassicQueue, "knows_next", False)
    channel.send(Basic.Get(queue=queue))
    api = API(broker.http_url)
    (name,) = [one["name"] for one in api.get("connections")]
    assert api.request("DELETE", "connections", name).status_code == 204
    with pytest.raises(ConnectionClosed, match="CONNECTION_FORCED"):
        channel.next()


def test_deliveries_that_are_put_back_one_by_one_take_their_places(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("q"))
    fill(channel, queue)
    for number in range(300):
        message = channel.get(queue, no_ack=False)
        assert message is not None
        assert message.body == b"%d" % number
    for tag in range(1, 301):
        channel.send(Basic.Nack(delivery_tag=tag, requeue=True))
    assert numbers(channel, queue) == list(range(COUNT))


def test_what_is_too_long_is_dead_lettered_in_steps_and_in_order(channel: WireChannel, unique: Name) -> None:
    grave = channel.queue(unique("grave"))
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave, "x-message-ttl": 200}
    queue = channel.queue(unique("q"), arguments=arguments)
    octets = b"".join(channel.publication("", queue, b"%d" % number) for number in range(COUNT))
    channel.connection.send(octets)
    assert numbers(channel, grave) == list(range(COUNT))
    assert channel.ready(queue) == 0


def test_the_upkeep_of_a_queue_that_fails_harms_no_other_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unique: Name
) -> None:
    bad, trim = unique("bad"), ClassicQueue.trim

    def fail(queue: ClassicQueue, now: float) -> None:
        if queue.name == bad:
            raise RuntimeError("damaged")
        trim(queue, now)

    monkeypatch.setattr(ClassicQueue, "trim", fail)
    timing = BrokerTiming(failed_maintenance=0.02)
    with jumpmq.running(timing=timing) as broker, login(broker.port) as connection:
        channel = connection.channel()
        grave = channel.queue(unique("grave"))
        to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave, "x-message-ttl": 30}
        channel.queue(bad, arguments={"x-message-ttl": 10})
        good = channel.queue(unique("good"), arguments=to_grave)
        channel.consume(grave, no_ack=True)
        channel.publish("", bad, b"stays")
        for number in range(5):
            channel.publish("", good, b"%d" % number)
            assert channel.next().body == b"%d" % number
    assert len([one for one in caplog.records if "the maintenance of" in one.message]) == 1


def held_up(monkeypatch: pytest.MonkeyPatch, answered: threading.Event) -> list[int]:
    """Delays every step of a removal of bindings until unrelated clients were answered; counts the steps."""
    taken, steps = [0], VirtualHost.removing_bindings_to

    def waiting_for_others(vhost: VirtualHost, destination: Destination) -> Iterator[None]:
        for _ in steps(vhost, destination):
            yield
            taken[0] += 1
            while not answered.is_set():
                yield

    monkeypatch.setattr(VirtualHost, "removing_bindings_to", waiting_for_others)
    return taken


def bind_many(channel: WireChannel, queue: str, exchange: str) -> None:
    for number in range(BINDINGS):
        channel.send(Queue.Bind(queue=queue, exchange=exchange, routing_key=f"key {number}", nowait=True))
    channel.call(Basic.Qos())


def test_others_are_served_while_a_queue_with_many_bindings_is_deleted(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    answered, queue = threading.Event(), channel.queue(unique("q"), exclusive=False)
    bind_many(channel, queue, "amq.direct")
    taken = held_up(monkeypatch, answered)
    with login(broker.port) as connection:
        other = connection.channel()
        waiting = channel.queue(unique("waiting"), exclusive=False)
        channel.send(Queue.Delete(queue=queue))
        until(lambda: taken[0] > 0)
        other.publish("", waiting, b"served meanwhile")
        assert other.bodies(waiting) == [b"served meanwhile"]
        assert other.call(Queue.Declare(queue=queue, passive=True)).queue == queue
        answered.set()
        assert isinstance(channel.next(), Queue.DeleteOk)
        assert taken[0] == BINDINGS + 1
        with pytest.raises(ChannelClosed, match="NOT_FOUND"):
            other.call(Queue.Declare(queue=queue, passive=True))
        channel.call(Queue.Delete(queue=waiting))


def test_others_are_served_while_an_exchange_with_many_bindings_is_deleted(
    monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    queue, exchange = channel.queue(unique("q")), channel.exchange(unique("e"), "direct", auto_delete=False)
    bind_many(channel, queue, exchange)
    monkeypatch.setattr(upkeep, "SLICE", 0)
    worked, step = [0], upkeep.Upkeep._run

    def run(self: upkeep.Upkeep) -> None:
        worked[0] += 1
        step(self)

    monkeypatch.setattr(upkeep.Upkeep, "_run", run)
    channel.call(Exchange.Delete(exchange=exchange))
    assert worked[0] >= BINDINGS - STEPS_AT_ONCE
    channel.publish("", queue, b"x")
    assert channel.bodies(queue) == [b"x"]


def test_a_queue_with_many_bindings_is_deleted_as_a_whole_over_a_crash(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        for queue in ("q", "kept"):
            channel.queue(queue, durable=True, exclusive=False)
            bind_many(channel, queue, "amq.direct")
        channel.call(Queue.Delete(queue="q"))
        serve.process.kill()
        serve.process.wait()
    with serving(tmp_path) as serve, login(serve.port) as connection:
        bindings = API(serve.http_url).get("bindings", "/")
        assert {one["destination"] for one in bindings} == {"kept"}
        assert len(bindings) == BINDINGS + 1


def test_a_connection_with_many_exclusive_queues_is_closed_when_all_are_gone(
    broker: jumpmq.RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: WireChannel, unique: Name
) -> None:
    answered, waiting = threading.Event(), channel.queue(unique("waiting"))
    propose, deleted = Topology.propose, [0]

    def counting(topology: Topology, change: Change, *principal: ChangePrincipal, limited: bool = False) -> Pending:
        deleted[0] += isinstance(change, DeleteQueue)
        return propose(topology, change, *principal, limited=limited)

    def step(self: upkeep.Upkeep) -> None:
        if answered.is_set() or deleted[0] < DELETED_AT_ONCE:
            take(self)

    take = upkeep.Upkeep._step
    with login(broker.port) as connection:
        leaving = connection.channel()
        names = [leaving.queue(unique(f"q{number}")) for number in range(3 * DELETED_AT_ONCE)]
        monkeypatch.setattr(Topology, "propose", counting)
        monkeypatch.setattr(upkeep.Upkeep, "_step", step)
        monkeypatch.setattr(upkeep, "SLICE", 0)
        connection.send(marshal(Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0), 0))
        until(lambda: deleted[0] == DELETED_AT_ONCE)
        channel.publish("", waiting, b"served meanwhile")
        assert channel.bodies(waiting) == [b"served meanwhile"]
        assert deleted[0] == DELETED_AT_ONCE
        answered.set()
        assert isinstance(connection.next_event(0), Connection.CloseOk)
    for name in names:
        channel.queue(name)
