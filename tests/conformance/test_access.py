"""Permissions to declare, publish and bind, limits of connections and channels, and effects of a user's deletion."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from fuzzing.sessions.client import publication
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, ConnectionClosed, Queue, WireChannel, WireConnection, closing, login

from jumpmq.amqp import methods
from jumpmq.testing import BrokerProcess, RabbitMQ

Name = Callable[[str], str]
VHOST = "/"


class Guarded:
    """A user with permissions set by the test, deleted at the end."""

    def __init__(self, broker: BrokerProcess, operator: Operator, name: str) -> None:
        self.broker, self.operator, self.name = broker, operator, name
        self._ask("PUT", "users", name, json={"password": name, "tags": ""})
        self.may()

    def may(self, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        self._ask("PUT", "permissions", VHOST, self.name, json={"configure": configure, "write": write, "read": read})

    def may_topics(self, exchange: str, write: str = ".*", read: str = ".*") -> None:
        body = {"exchange": exchange, "write": write, "read": read}
        self._ask("PUT", "topic-permissions", VHOST, self.name, json=body)

    def limit(self, name: str, value: int) -> None:
        self._ask("PUT", "user-limits", self.name, name, json={"value": value})

    def login(self) -> WireConnection:
        return login(self.broker.port, user=self.name, password=self.name)

    def delete(self) -> None:
        self.operator.ask("DELETE", "users", self.name)

    def _ask(self, method: str, *parts: str, json: Any) -> None:
        response = self.operator.ask(method, *parts, json=json)
        assert response.status_code in (201, 204), response.text


@pytest.fixture
def guarded(broker: BrokerProcess, operator: Operator, unique: Name) -> Iterator[Guarded]:
    user = Guarded(broker, operator, unique("guarded"))
    yield user
    user.delete()


def refused(user: Guarded, act: Callable[[WireChannel], object]) -> str:
    """Return the reply text of a refused operation of the user."""
    with closing(user.login()) as connection, pytest.raises(ChannelClosed) as closed:
        act(connection.channel())
    assert closed.value.code == 403
    return closed.value.text.replace(user.name, "USER")


def text(operation: str, kind: str, name: str) -> str:
    return f"ACCESS_REFUSED - {operation} access to {kind} '{name}' in vhost '/' refused for user 'USER'"


# --- permissions to forward messages ---


@pytest.mark.parametrize("target", ["amq.fanout", ""])
def test_dead_letters_go_where_the_user_may_write(guarded: Guarded, unique: Name, target: str) -> None:
    queue = unique("mine")
    guarded.may(configure="^mine", write="^mine", read=".*")
    arguments = {"x-dead-letter-exchange": target}
    expected = text("write", "exchange", target or "amq.default")
    assert refused(guarded, lambda channel: channel.queue(queue, arguments=arguments)) == expected
    guarded.may(configure="^mine", write=".*", read="^other")
    assert refused(guarded, lambda channel: channel.queue(queue, arguments=arguments)) == text("read", "queue", queue)
    guarded.may(configure="^mine", write="^amq", read="^mine")
    with closing(guarded.login()) as connection:
        assert connection.channel().queue(queue, arguments=arguments) == queue


def test_only_who_declares_it_first_needs_that(guarded: Guarded, channel: WireChannel, unique: Name) -> None:
    queue, arguments = unique("mine"), {"x-dead-letter-exchange": "amq.fanout"}
    channel.queue(queue, arguments=arguments, exclusive=False)
    guarded.may(configure="^mine", write="^mine", read="^other")
    with closing(guarded.login()) as connection:
        assert connection.channel().queue(queue, arguments=arguments, exclusive=False) == queue
    channel.call(Queue.Delete(queue=queue))


def test_an_alternate_exchange_is_one_that_the_user_may_write(guarded: Guarded, unique: Name) -> None:
    name = unique("mine")

    def declare(channel: WireChannel) -> None:
        channel.exchange(name, "direct", arguments={"alternate-exchange": "amq.fanout"})

    guarded.may(configure="^mine", write="^mine", read=".*")
    assert refused(guarded, declare) == text("write", "exchange", "amq.fanout")
    guarded.may(configure="^mine", write=".*", read="^other")
    assert refused(guarded, declare) == text("read", "exchange", name)


# --- topics ---


def topic_text(topic: str, operation: str = "write") -> str:
    where = f"topic '{topic}' in exchange 'amq.topic' in vhost '/'"
    return f"ACCESS_REFUSED - {operation} access to {where} refused for user 'USER'"


def test_routing_keys_may_be_limited(guarded: Guarded) -> None:
    guarded.may_topics("amq.topic", write="^{username}[.]|^{vhost}$")
    with closing(guarded.login()) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for key in (f"{guarded.name}.x", VHOST):
            channel.publish("amq.topic", key, b"")
            assert isinstance(channel.next(), Basic.Ack)
        channel.publish("amq.direct", "any", b"")
        assert isinstance(channel.next(), Basic.Ack)
    for key in ("other.x", "{username}.x", ""):
        assert refused(guarded, lambda channel, key=key: publish(channel, key)) == topic_text(key)  # type: ignore[misc]


def test_a_routing_key_that_is_no_text_is_refused_in_one(broker: BrokerProcess, guarded: Guarded) -> None:
    """A refused routing key in invalid UTF-8 is quoted with ``?``; RabbitMQ 4.0 reads the octets as Latin-1."""
    guarded.may_topics("amq.topic", write="^mine")
    method = methods.BasicPublish(0, "amq.topic", b"\xff", False, False)
    with closing(guarded.login()) as connection:
        connection.channel(1)
        connection.send(publication(1, method, b"\0\0", b""))
        _, _, payload = connection.read_frame()
    topic = "\xff" if broker.name == "RabbitMQ" else "?"
    assert f"write access to topic '{topic}' in".encode() in payload


def publish(channel: WireChannel, key: str) -> None:
    channel.publish("amq.topic", key, b"")
    channel.queue()


def test_binding_keys_may_be_limited(guarded: Guarded, unique: Name) -> None:
    queue = unique("queue")
    guarded.may_topics("amq.topic", read="^mine")

    def bind(channel: WireChannel, key: str) -> None:
        channel.queue(queue)
        channel.bind(queue, "amq.topic", key)

    with closing(guarded.login()) as connection:
        bind(connection.channel(), "mine.#")
    for key in ("#", "other"):
        assert refused(guarded, lambda channel, key=key: bind(channel, key)) == topic_text(key, "read")  # type: ignore[misc]
    unbind = Queue.Unbind(queue=queue, exchange="amq.topic", routing_key="#")
    assert refused(guarded, lambda channel: (channel.queue(queue), channel.call(unbind))) == topic_text("#", "read")


def test_an_empty_expression_allows_no_topic(guarded: Guarded) -> None:
    guarded.may_topics("amq.topic", write="")
    assert refused(guarded, lambda channel: publish(channel, "a")) == topic_text("a")


# --- limits ---


def test_a_user_has_so_many_connections(guarded: Guarded) -> None:
    guarded.limit("max-connections", 1)
    with closing(guarded.login()):
        with pytest.raises(ConnectionClosed) as refused:
            guarded.login()
        assert (refused.value.code, refused.value.text.replace(guarded.name, "USER")) == (
            530,
            "NOT_ALLOWED - connection refused for user 'USER': user connection limit (1) is reached",
        )
    guarded.limit("max-connections", -1)
    with closing(guarded.login()), closing(guarded.login()):
        pass


def test_a_user_has_so_many_channels(broker: BrokerProcess, guarded: Guarded) -> None:
    """The refusal of a channel above the user's limit names the user; RabbitMQ 4.0.5 names its node."""
    guarded.limit("max-channels", 2)
    with guarded.login() as connection:
        connection.channel()
        connection.channel()
        with pytest.raises(ConnectionClosed) as refused:
            connection.channel()
    named = broker.node if isinstance(broker, RabbitMQ) and broker.version >= (4, 0) else guarded.name
    assert (refused.value.code, refused.value.text.replace(named, "USER")) == (
        530,
        "NOT_ALLOWED - number of channels opened for user 'USER' has reached the maximum allowed user limit of (2)",
    )


@pytest.fixture
def limited(operator: Operator, unique: Name) -> Iterator[str]:
    """A virtual host for a single test."""
    name = unique("host")
    assert operator.ask("PUT", "vhosts", name, json={}).status_code == 201
    yield name
    operator.ask("DELETE", "vhosts", name)


def test_a_virtual_host_has_so_many_queues(broker: BrokerProcess, operator: Operator, limited: str) -> None:
    assert operator.ask("PUT", "vhost-limits", limited, "max-queues", json={"value": 1}).status_code == 204
    with closing(login(broker.port, vhost=limited)) as connection:
        channel = connection.channel()
        assert channel.queue("first") == "first"
        assert channel.queue("first") == "first"
        with pytest.raises(ChannelClosed) as refused:
            channel.queue("second")
    assert (refused.value.code, refused.value.text) == (
        406,
        f"PRECONDITION_FAILED - cannot declare queue 'second': queue limit in vhost '{limited}' (1) is reached",
    )
    assert operator.see("vhost-limits", limited) == [{"vhost": limited, "value": {"max-queues": 1}}]


def test_a_virtual_host_has_so_many_connections(broker: BrokerProcess, operator: Operator, limited: str) -> None:
    assert operator.ask("PUT", "vhost-limits", limited, "max-connections", json={"value": 1}).status_code == 204
    with closing(login(broker.port, vhost=limited)), pytest.raises(ConnectionClosed) as refused:
        login(broker.port, vhost=limited)
    assert (refused.value.code, refused.value.text) == (
        530,
        f"NOT_ALLOWED - access to vhost '{limited}' refused for user 'guest': connection limit (1) is reached",
    )


# --- changes of users ---


def test_connections_end_with_their_user(guarded: Guarded) -> None:
    with guarded.login() as connection:
        guarded.delete()
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(1000):
                with suppress(ChannelClosed):  # RabbitMQ may refuse an operation before it closes
                    connection.channel().queue()
    assert (closed.value.code, closed.value.text) == (320, f"CONNECTION_FORCED - user '{guarded.name}' is deleted")


def test_permissions_count_from_the_next_operation_on(guarded: Guarded, unique: Name) -> None:
    queue = unique("queue")
    with closing(guarded.login()) as connection:
        channel = connection.channel()
        channel.queue(queue)
        guarded.may(configure="^none$")

        def denied() -> bool:
            try:
                connection.channel().queue(unique("queue"))
            except ChannelClosed as refusal:
                return refusal.code == 403
            return False

        until(denied)
