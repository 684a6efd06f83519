"""Configured limits of a connection and of a user."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.http.api import API
from tests.wire import Basic, ChannelClosed, ConnectionClosed, Queue, WireConnection, closing, login

import jumpmq


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    """A broker with low limits for each connection."""
    with jumpmq.running(
        channel_max=3, frame_max=8192, consumer_max_per_channel=2, publish_rate=100, heartbeat=7
    ) as running:
        yield running


def test_limits_are_proposed_and_kept(broker: jumpmq.RunningBroker) -> None:
    with login(broker.port, channel_max=3, frame_max=8192) as connection:
        tune = connection.tune
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (3, 8192, 7)
        channel = connection.channel()
        queue = channel.queue()
        channel.publish("", queue, bytes(50_000))
        message = channel.get(queue)
        assert message is not None
        assert len(message.body) == 50_000
    for channel_max, frame_max in ((4, 8192), (3, 8193)):
        with pytest.raises(ConnectionClosed) as closed:
            login(broker.port, channel_max=channel_max, frame_max=frame_max)
        assert closed.value.code == 530


def test_consumers_of_a_channel(broker: jumpmq.RunningBroker) -> None:
    with login(broker.port, channel_max=3, frame_max=8192) as connection:
        channel = connection.channel()
        queue = channel.queue()
        first = channel.consume(queue)
        channel.consume(queue)
        channel.call(Basic.Cancel(first))
        channel.consume(queue)
        with pytest.raises(ConnectionClosed) as closed:
            channel.consume(queue)
        assert closed.value.code == 530
        assert closed.value.text == "NOT_ALLOWED - reached maximum (2) of consumers per channel"


def test_who_publishes_faster_is_read_later(broker: jumpmq.RunningBroker) -> None:
    with (
        login(broker.port, channel_max=3, frame_max=8192) as connection,
        login(broker.port, channel_max=3, frame_max=8192) as other,
    ):
        channel, bystander = connection.channel(), other.channel()
        queue = bystander.queue(exclusive=False, auto_delete=True)
        channel.confirm_select()
        for _ in range(60):
            channel.publish("", queue, b"")
        counts = {bystander.ready(queue)}
        channel.wait_for_confirms()
        counts.add(bystander.ready(queue))
    assert min(counts) < 60
    assert max(counts) == 60


# --- of users ---

_numbers = itertools.count(1)


class Limited:
    """A user with limits set by a test."""

    def __init__(self, broker: jumpmq.RunningBroker, name: str = "") -> None:
        self.port = broker.port
        self.name = name or f"limited-{next(_numbers)}"
        self._api = API(broker.http_url)
        self._put("users", self.name, password=self.name, tags="management")
        self._put("permissions", "/", self.name, configure=".*", write=".*", read=".*")
        self.api = API(broker.http_url.replace("guest:guest", f"{self.name}:{self.name}"))

    def limit(self, name: str, value: int) -> None:
        self._put("user-limits", self.name, name, value=value)

    def login(self) -> WireConnection:
        return login(self.port, user=self.name, password=self.name)

    def _put(self, *parts: str, **body: object) -> None:
        assert self._api.request("PUT", *parts, json=body).status_code in (201, 204)


@pytest.fixture(scope="module")
def plain() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running() as running:
        yield running


@pytest.fixture
def user(plain: jumpmq.RunningBroker) -> Limited:
    return Limited(plain)


def refusal(user: Limited, act: Callable[[], object], code: int = 406) -> str:
    with pytest.raises((ChannelClosed, ConnectionClosed)) as closed:
        act()
    assert closed.value.code == code
    return closed.value.text.replace(user.name, "USER")


def test_a_user_has_so_many_queues(user: Limited) -> None:
    user.limit("max-queues", 2)
    with closing(user.login()) as connection, closing(user.login()) as another:
        channel = connection.channel()
        first = channel.queue(f"{user.name}.1", exclusive=False)
        another.channel().queue(f"{user.name}.2")
        assert channel.queue(first, exclusive=False) == first
        text = "PRECONDITION_FAILED - cannot declare queue 'third': queue limit of user 'USER' (2) is reached"
        assert refusal(user, lambda: another.channel().queue("third")) == text
        reason = user.api.request("PUT", "queues", "/", "third", json={}).json()["reason"]
        assert reason.replace(user.name, "USER") == text.partition(" - ")[2]
        channel.call(Queue.Delete(queue=first))
        assert channel.queue("third") == "third"


def test_a_user_has_so_many_bindings(user: Limited, plain: jumpmq.RunningBroker) -> None:
    user.limit("max-bindings", 2)
    with closing(user.login()) as connection, closing(login(plain.port)) as somebody:
        channel = connection.channel()
        queue = channel.queue(f"{user.name}.q", exclusive=False)
        somebody.channel().bind(queue, "amq.direct", "of somebody else")
        for key in ("a", "b", "b"):
            channel.bind(queue, "amq.direct", key)
        text = f"PRECONDITION_FAILED - cannot bind queue '{queue}': binding limit of user 'USER' (2) is reached"
        assert refusal(user, lambda: connection.channel().bind(queue, "amq.direct", "c")) == text.replace(
            user.name, "USER"
        )
        channel.call(Queue.Unbind(queue=queue, exchange="amq.direct", routing_key="a"))
        channel.bind(queue, "amq.direct", "c")
        channel.call(Queue.Delete(queue=queue))  # and the queue's bindings
        for key in ("a", "b"):
            channel.bind(channel.queue(f"{user.name}.q"), "amq.direct", key)


def test_a_user_has_so_many_consumers(user: Limited) -> None:
    user.limit("max-consumers", 2)
    with closing(user.login()) as connection, user.login() as another:
        channel = connection.channel()
        queue = channel.queue(f"{user.name}.q", exclusive=False)
        tag = channel.consume(queue)
        another.channel().consume(queue)
        refused = refusal(user, lambda: another.channel().consume(queue), 530)
        assert refused == "NOT_ALLOWED - number of consumers of user 'USER' has reached the user's limit (2)"
        channel.call(Basic.Cancel(tag))
        channel.consume(queue)


def test_a_user_publishes_so_fast_over_all_connections(user: Limited) -> None:
    user.limit("max-publish-rate", 100)
    with closing(user.login()) as connection, closing(user.login()) as another:
        queue = connection.channel().queue(f"{user.name}.q", exclusive=False)
        channels = [connection.channel(), another.channel()]
        for channel in channels:
            channel.confirm_select()
        with closing(login(user.port)) as bystander:
            looking = bystander.channel()
            for _ in range(40):
                for channel in channels:
                    channel.publish("", queue, b"")
            counts = {looking.ready(queue)}
            user.limit("max-publish-rate", -1)  # waiting clients go on, and wait no more
            for channel in channels:
                channel.wait_for_confirms()
            counts.add(looking.ready(queue))
    assert min(counts) < 80
    assert max(counts) == 80


def test_requests_count_as_well(user: Limited) -> None:
    user.limit("max-publish-rate", 1000)
    message = {"routing_key": "none", "payload": "", "payload_encoding": "string", "properties": {}}
    assert user.api.post("exchanges", "/", "amq.default", "publish", body=message) == {"routed": False}


def test_what_a_user_has_is_known_after_a_restart(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker:
        user = Limited(broker, "kept")
        user.limit("max-queues", 1)
        user.limit("max-bindings", 1)
        with closing(user.login()) as connection:
            queue = connection.channel().queue("durable", durable=True, exclusive=False)
            connection.channel().bind(queue, "amq.direct", "a")
    with jumpmq.running(data_dir=tmp_path) as broker:
        user = Limited(broker, "kept")
        with closing(user.login()) as connection:
            assert "queue limit of user" in refusal(user, lambda: connection.channel().queue("another"))
            assert "binding limit" in refusal(user, lambda: connection.channel().bind("durable", "amq.direct", "b"))
            connection.channel().call(Queue.Unbind(queue="durable", exchange="amq.direct", routing_key="a"))
            connection.channel().bind("durable", "amq.direct", "b")
