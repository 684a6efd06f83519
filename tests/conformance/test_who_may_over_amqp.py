"""Permissions over AMQP: every method of a client against configure, write and read, on both brokers.

A row lists the permissions required by a method. With exactly these permissions the method succeeds; without any one of
them it is refused, and the refusal names the missing permission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.conformance.operator import Operator
from tests.wire import (
    Basic,
    Channel,
    ChannelClosed,
    Confirm,
    Exchange,
    Queue,
    Tx,
    WireChannel,
    closing,
    login,
)

from jumpmq.amqp import methods
from jumpmq.testing import BrokerProcess

USER = "who-may-over-amqp"
OPERATIONS = ("configure", "write", "read")
Need = tuple[str, str, str]
"""An operation, the kind of its object, and the object's name."""

QUEUE, MADE = "who.queue", "who.made"
SOURCE, TARGET, TOPIC = "who.source", "who.target", "who.topic"


class Row(NamedTuple):
    """A method of a client, in some form.

    Attributes:
        ready: an administrator's preparation.
        act: the user's operation; returns after its completion, or raises.
    """

    method: str
    form: str
    needs: tuple[Need, ...]
    act: Callable[[WireChannel], Any]
    ready: Callable[[WireChannel], Any] = lambda channel: None

    def __str__(self) -> str:
        return f"{self.method} {self.form}".strip()


def calling(method: Any) -> Callable[[WireChannel], Any]:
    return lambda channel: channel.call(method)


def sending(*sent: Any) -> Callable[[WireChannel], Any]:
    """Methods without an answer, followed by a method with an answer."""

    def act(channel: WireChannel) -> None:
        for method in sent:
            channel.send(method)
        channel.call(Basic.Qos(prefetch_count=0))

    return act


def publishing(exchange: str, key: str, *before: Any) -> Callable[[WireChannel], Any]:
    def act(channel: WireChannel) -> None:
        for method in before:
            channel.call(method)
        channel.publish(exchange, key, b"x")
        channel.call(Tx.Commit() if before else Basic.Qos(prefetch_count=0))

    return act


def after_get(*methods: Any) -> Callable[[WireChannel], Any]:
    """Methods about a message of ``basic.get``."""

    def act(channel: WireChannel) -> None:
        assert channel.get(QUEUE, no_ack=False) is not None
        sending(*methods)(channel)

    return act


def a_message(channel: WireChannel) -> None:
    channel.publish("", QUEUE, b"x")
    channel.ready(QUEUE)


def a_binding(channel: WireChannel) -> None:
    channel.bind(QUEUE, SOURCE, "k")
    channel.call(Exchange.Bind(destination=TARGET, source=SOURCE, routing_key="k"))


def a_consumer(channel: WireChannel) -> None:
    channel.call(Basic.Cancel(channel.consume(QUEUE)))


def made(channel: WireChannel) -> None:
    channel.queue(MADE, exclusive=False)
    channel.exchange(MADE, "direct", auto_delete=False)


CONFIGURE_QUEUE, WRITE_QUEUE, READ_QUEUE = ((one, "queue", QUEUE) for one in OPERATIONS)
READ_SOURCE, WRITE_SOURCE = ("read", "exchange", SOURCE), ("write", "exchange", SOURCE)
CONFIGURE_MADE_QUEUE, CONFIGURE_MADE_EXCHANGE = ("configure", "queue", MADE), ("configure", "exchange", MADE)

TABLE = [
    Row("Channel.Flow", "", (), calling(Channel.Flow(active=True))),
    Row("Exchange.Declare", "", (CONFIGURE_MADE_EXCHANGE,), lambda channel: channel.exchange(MADE, "direct")),
    Row(
        "Exchange.Declare",
        "with alternate-exchange",
        (CONFIGURE_MADE_EXCHANGE, ("read", "exchange", MADE), ("write", "exchange", TARGET)),
        lambda channel: channel.exchange(MADE, "direct", arguments={"alternate-exchange": TARGET}),
    ),
    Row("Exchange.Declare", "passive", (), calling(Exchange.Declare(exchange=SOURCE, passive=True))),
    Row("Exchange.Delete", "", (CONFIGURE_MADE_EXCHANGE,), calling(Exchange.Delete(exchange=MADE)), made),
    Row(
        "Exchange.Bind",
        "",
        (("write", "exchange", TARGET), READ_SOURCE),
        calling(Exchange.Bind(destination=TARGET, source=SOURCE, routing_key="k")),
    ),
    Row(
        "Exchange.Unbind",
        "",
        (("write", "exchange", TARGET), READ_SOURCE),
        calling(Exchange.Unbind(destination=TARGET, source=SOURCE, routing_key="k")),
        a_binding,
    ),
    Row("Queue.Declare", "", (CONFIGURE_MADE_QUEUE,), lambda channel: channel.queue(MADE)),
    Row("Queue.Declare", "that is there", (CONFIGURE_QUEUE,), lambda channel: channel.queue(QUEUE, exclusive=False)),
    Row("Queue.Declare", "passive", (), calling(Queue.Declare(queue=QUEUE, passive=True))),
    Row(
        "Queue.Declare",
        "with x-dead-letter-exchange",
        (CONFIGURE_MADE_QUEUE, ("read", "queue", MADE), ("write", "exchange", TARGET)),
        lambda channel: channel.queue(MADE, arguments={"x-dead-letter-exchange": TARGET}),
    ),
    Row("Queue.Bind", "", (WRITE_QUEUE, READ_SOURCE), lambda channel: channel.bind(QUEUE, SOURCE, "k")),
    Row("Queue.Bind", "to topics", (WRITE_QUEUE, ("read", "exchange", TOPIC)), lambda c: c.bind(QUEUE, TOPIC, "k")),
    Row(
        "Queue.Unbind",
        "",
        (WRITE_QUEUE, READ_SOURCE),
        calling(Queue.Unbind(queue=QUEUE, exchange=SOURCE, routing_key="k")),
        a_binding,
    ),
    Row("Queue.Purge", "", (READ_QUEUE,), calling(Queue.Purge(queue=QUEUE))),
    Row("Queue.Delete", "", (CONFIGURE_MADE_QUEUE,), calling(Queue.Delete(queue=MADE)), made),
    Row("Basic.Publish", "", (WRITE_SOURCE,), publishing(SOURCE, "k")),
    Row("Basic.Publish", "to topics", (("write", "exchange", TOPIC),), publishing(TOPIC, "k")),
    Row("Basic.Publish", "by queue", (("write", "exchange", "amq.default"),), publishing("", QUEUE)),
    Row("Basic.Publish", "in a transaction", (WRITE_SOURCE,), publishing(SOURCE, "k", Tx.Select())),
    Row("Basic.Consume", "", (READ_QUEUE,), lambda channel: channel.consume(QUEUE)),
    Row("Basic.Cancel", "", (READ_QUEUE,), a_consumer),
    Row("Basic.Get", "", (READ_QUEUE,), lambda channel: channel.get(QUEUE), a_message),
    Row("Basic.Ack", "", (READ_QUEUE,), after_get(Basic.Ack(1)), a_message),
    Row("Basic.Nack", "", (READ_QUEUE,), after_get(Basic.Nack(1)), a_message),
    Row("Basic.Reject", "", (READ_QUEUE,), after_get(Basic.Reject(1)), a_message),
    Row("Basic.Recover", "", (READ_QUEUE,), after_get(Basic.Recover(requeue=True)), a_message),
    Row("Basic.RecoverAsync", "", (READ_QUEUE,), after_get(Basic.RecoverAsync(requeue=True)), a_message),
    Row("Basic.Qos", "", (), calling(Basic.Qos(prefetch_count=5))),
    Row("Confirm.Select", "", (), calling(Confirm.Select())),
    Row("Tx.Select", "", (), calling(Tx.Select())),
    Row("Tx.Commit", "", (), lambda channel: (channel.call(Tx.Select()), channel.call(Tx.Commit()))),
    Row("Tx.Rollback", "", (), lambda channel: (channel.call(Tx.Select()), channel.call(Tx.Rollback()))),
]


class World:
    """A user without permissions, and an administrator's channel, in a separate virtual host."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker, self.operator = broker, Operator(broker)

    def allow(self, needs: tuple[Need, ...]) -> None:
        """Give the user these permissions only."""
        body = dict.fromkeys(OPERATIONS, "^$")
        for operation in OPERATIONS:
            if names := [name for kind, _, name in needs if kind == operation]:
                body[operation] = f"^({'|'.join(names)})$"
        assert self.operator.ask("PUT", "permissions", USER, USER, json=body).status_code in (201, 204)

    def act(self, row: Row) -> None:
        """
        Raises:
            ChannelClosed: the user may not.
        """
        with closing(login(self.broker.port, vhost=USER)) as connection:
            channel = connection.channel()
            for name in (MADE, QUEUE):
                channel.call(Queue.Delete(queue=name))
            channel.call(Exchange.Delete(exchange=MADE))
            channel.queue(QUEUE, exclusive=False)
            for name, kind in ((SOURCE, "direct"), (TARGET, "fanout"), (TOPIC, "topic")):
                channel.exchange(name, kind, auto_delete=False)
            row.ready(channel)
        with closing(login(self.broker.port, user=USER, password=USER, vhost=USER)) as connection:
            row.act(connection.channel())


@pytest.fixture(scope="module")
def world(broker: BrokerProcess) -> Iterator[World]:
    found = World(broker)
    for kind, body in (("vhosts", {}), ("users", {"password": USER, "tags": ""})):
        assert found.operator.ask("PUT", kind, USER, json=body).status_code in (201, 204)
    yield found
    for kind in ("vhosts", "users"):
        found.operator.ask("DELETE", kind, USER)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_every_method_against_every_permission(world: World, row: Row) -> None:
    world.allow(row.needs)
    world.act(row)
    others = [(operation, "queue", name) for operation in OPERATIONS for name in (QUEUE, MADE, SOURCE, TARGET, TOPIC)]
    others.append(("write", "exchange", "amq.default"))
    for missing in row.needs:
        world.allow(tuple(one for one in others if (one[0], one[2]) != (missing[0], missing[2])))
        with pytest.raises(ChannelClosed) as closed:
            world.act(row)
        operation, kind, name = missing
        assert (closed.value.code, closed.value.text) == (
            403,
            f"ACCESS_REFUSED - {operation} access to {kind} '{name}' in vhost '{USER}' refused for user '{USER}'",
        )


def test_no_method_is_missing_from_the_table() -> None:
    clients = {"Queue", "Exchange", "Basic", "Tx", "Confirm"}
    answers = {"BasicReturn", "BasicDeliver", "BasicGetOk", "BasicGetEmpty"}
    rows = {row.method.replace(".", "") for row in TABLE}
    known = {one.__name__ for one in methods.METHODS.values()}
    asked = {name for name in known if any(name.startswith(prefix) for prefix in clients) and not name.endswith("Ok")}
    assert asked - answers == rows - {"ChannelFlow"}
