"""Samples over time, as requested by clients of RabbitMQ's API, in lists and of single objects."""

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from tests.http.api import API, publish
from tests.waiting import until

import jumpmq
from jumpmq.http.history import Track
from jumpmq.http.rates import INTERVAL

ASKED = {
    f"{kind}_{word}": value
    for kind in ("msg_rates", "lengths", "data_rates", "node_stats")
    for word, value in (("age", 60), ("incr", 1))
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    """A durable broker with some seconds of traffic."""
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("samples") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)


@pytest.fixture(scope="module")
def sampled(broker: jumpmq.RunningBroker, api: API) -> Iterator[dict[str, tuple[str, ...]]]:
    """Paths of the sampled objects by kind, after enough requests for some samples."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "e")
    (one,) = api.get("channels")
    names = {
        "overview": ("overview",),
        "node": ("nodes", broker.node),
        "vhost": ("vhosts", "/"),
        "queue": ("queues", "/", "q"),
        "exchange": ("exchanges", "/", "e"),
        "connection": ("connections", one["connection_details"]["name"]),
        "channel": ("channels", one["name"]),
    }
    for path in names.values():
        api.get(*path, **ASKED)  # starts its history
    publish(channel, "q", [b"x"] * 3)
    channel.basic_publish("e", "", b"y")
    channel.basic_get("q")
    until(lambda: came_last(api.get(*names["queue"], **ASKED)))
    yield names
    connection.close()


def came_last(shown: dict[str, Any]) -> bool:
    """Return true if there are several samples, and the latest includes the unacknowledged message."""
    unacknowledged = [one["sample"] for one in shown["messages_unacknowledged_details"]["samples"]]
    return len(unacknowledged) >= 4 and unacknowledged[0] == 1


def latest(details: dict[str, Any]) -> float:
    """The latest sample of several, in descending order of time, with averages."""
    samples = details["samples"]
    assert [one["timestamp"] for one in samples] == sorted([one["timestamp"] for one in samples], reverse=True)
    assert {"rate", "avg", "avg_rate"} <= details.keys()
    sample: float = samples[0]["sample"]
    return sample


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("queue", {"publish": 4, "get": 1, "deliver_get": 1, "ack": 0}),
        ("exchange", {"publish_in": 1, "publish_out": 1}),
        ("channel", {"publish": 4, "confirm": 4, "get": 1, "deliver_get": 1, "return_unroutable": 0}),
        ("vhost", {"publish": 4, "confirm": 4, "get": 1, "deliver_get": 1, "drop_unroutable": 0}),
        ("overview", {"publish": 4, "confirm": 4, "get": 1, "deliver_get": 1, "drop_unroutable": 0}),
    ],
)
def test_samples_of_messages(
    api: API, sampled: dict[str, tuple[str, ...]], kind: str, expected: dict[str, int]
) -> None:
    stats = api.get(*sampled[kind], **ASKED)["message_stats"]
    assert {name: latest(stats[f"{name}_details"]) for name in expected} == expected
    assert "samples" not in str(api.get(*sampled[kind])), "nobody has asked"


@pytest.mark.parametrize("kind", ["queue", "vhost", "overview"])
def test_samples_of_lengths(api: API, sampled: dict[str, tuple[str, ...]], kind: str) -> None:
    shown = api.get(*sampled[kind], **ASKED)
    lengths = shown.get("queue_totals", shown)
    found = {name: latest(lengths[f"{name}_details"]) for name in ("messages", "messages_ready")}
    assert found == {"messages": 4, "messages_ready": 3}


def test_samples_of_octets(api: API, sampled: dict[str, tuple[str, ...]]) -> None:
    shown = api.get(*sampled["connection"], **ASKED)
    assert 0 < latest(shown["recv_oct_details"]) <= shown["recv_oct"]
    assert 0 < latest(shown["send_oct_details"]) <= shown["send_oct"]


def test_samples_of_the_node(api: API, sampled: dict[str, tuple[str, ...]]) -> None:
    shown = api.get(*sampled["node"], **ASKED)
    assert latest(shown["mem_used_details"]) > 1e6
    assert latest(shown["sockets_used_details"]) == 1


@pytest.mark.parametrize("kind", ["vhost", "queue", "exchange", "connection", "channel", "node"])
def test_lists_have_them_too(api: API, sampled: dict[str, tuple[str, ...]], kind: str) -> None:
    path = sampled[kind]
    (one,) = [one for one in api.get(path[0], **ASKED) if one["name"] == path[-1]]
    assert set(samples_in(one)) == set(samples_in(api.get(*path, **ASKED))) != set()


def samples_in(shown: Any, at: str = "") -> Iterator[str]:
    """Paths of the samples in an object."""
    if isinstance(shown, dict):
        for name, inner in shown.items():
            yield from [at] if name == "samples" else samples_in(inner, f"{at}.{name}")


def test_a_page_of_many_queues_has_as_many_as_there_is_room_for(api: API, channel_of_many: None) -> None:

    def with_samples() -> int:
        shown = api.get("queues", page=1, page_size=300, sort="name", name="many-", **ASKED)["items"]
        assert len(shown) == 300
        return len([one for one in shown if one["messages_details"]["samples"]])

    assert until(lambda: (count := with_samples()) >= 150 and count) < 300
    assert api.get("queues", "/", "q", **ASKED)["messages_details"]["samples"], "who came first is not pushed aside"


@pytest.fixture
def channel_of_many(broker: jumpmq.RunningBroker, sampled: dict[str, tuple[str, ...]]) -> Iterator[None]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    for number in range(300):
        channel.queue_declare(f"many-{number:03}")
    yield
    connection.close()


@pytest.mark.parametrize("wrong", [{"lengths_incr": 0}, {"msg_rates_age": 90_000}, {"data_rates_incr": 61}])
def test_what_is_not_kept_is_refused(api: API, sampled: dict[str, tuple[str, ...]], wrong: dict[str, int]) -> None:
    path = "connection" if "data_rates_incr" in wrong else "queue"
    assert api.request("GET", *sampled[path], params=ASKED | wrong).status_code == 400


def test_a_span_is_that_long_where_a_busy_broker_has_taken_samples_further_apart() -> None:
    track, now = Track(("ready", "publish")), time.time()
    for number in range(10):
        track.add(now - 90 + 10 * number, [number, 20 * number])
    shown = track.shown(35)
    assert shown["at"] == [round(now - ago, 1) for ago in (30, 20, 10, 0)]
    assert (shown["ready"], shown["publish"]) == ([6, 7, 8, 9], [2.0] * 4)


def test_rates_of_the_last_reading_do_not_fade_until_the_next(broker: jumpmq.RunningBroker, api: API) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("steady")
        channel.queue_bind("steady", "amq.fanout")
        for number in range(50):
            channel.basic_publish("amq.fanout", "", b"%d" % number)

        def rate() -> float:
            (queue,) = api.get("exchanges", "/", "amq.fanout", "flow")["queues"]
            return float(queue["publish_rate"])

        until(rate)
        began, seen = time.monotonic(), set()
        for _ in range(30):
            seen.add(rate())
        assert len(seen) <= 2 + (time.monotonic() - began) / INTERVAL
