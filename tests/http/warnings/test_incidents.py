"""Incidents: a cause with its effects, a common entry for similar queues, advice by the purpose of a queue."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic
from tests.http.api import API, publish
from tests.waiting import until

import jumpmq
from jumpmq.http.warnings.incidents import by_cause, pattern_of
from jumpmq.http.warnings.rings import percent
from jumpmq.http.warnings.warning import Warning


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    """A broker for all tests; every test has a virtual host of its own."""
    with jumpmq.running(data_dir=tmp_path_factory.mktemp("incidents") / "data") as running:
        yield running


@pytest.fixture
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)


@pytest.fixture
def vhost(api: API, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    api.request("PUT", "vhosts", name)
    api.request("PUT", "permissions", name, "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    yield name
    api.request("DELETE", "vhosts", name)


@pytest.fixture
def channel(broker: jumpmq.RunningBroker, vhost: str) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, vhost, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def incidents(api: API, vhost: str) -> list[dict[str, Any]]:
    return [one for one in api.get("incidents") if one["vhost"] == vhost]


def only(api: API, vhost: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The only incident of a virtual host, once it satisfies ``wanted``."""
    return until(lambda: len(found := incidents(api, vhost)) == 1 and wanted(found[0]) and found[0])


def test_what_a_hot_key_does_to_its_queue_is_folded_under_it(api: API, channel: BlockingChannel, vhost: str) -> None:
    channel.exchange_declare("orders", "x-consistent-hash", durable=True)
    for number in range(4):
        channel.queue_declare(f"part-{number}", durable=True, arguments={"x-max-length": 2000})
        channel.queue_bind(f"part-{number}", "orders", "1")
    channel.basic_qos(prefetch_count=10, global_qos=False)
    for number in range(4):
        channel.basic_consume(f"part-{number}", lambda *_: None)
    for number in range(600):
        channel.basic_publish("orders", "acme" if number % 2 else f"customer-{number}", b"order")

    def wanted(one: dict[str, Any]) -> bool:
        return one["kind"] == "hot-key" and [each["kind"] for each in one["symptoms"]] == ["slow-consumer"]

    hot = until(lambda: [one for one in incidents(api, vhost) if wanted(one)])[0]
    ring = api.get("exchanges", vhost, "orders", "ring", "traffic")
    assert hot["queue"] == ring["hottest"][0]["destination"] == hot["symptoms"][0]["name"]
    assert hot["messages"] == hot["symptoms"][0]["messages"] > 200
    assert "More queues do not help" in hot["advice"]
    assert not [one for one in incidents(api, vhost) if one["kind"] == "slow-consumer" and one["name"] == hot["queue"]]


def test_a_queue_that_is_full_for_its_consumer_is_one_incident_and_an_alarm(
    api: API, channel: BlockingChannel, vhost: str
) -> None:
    channel.queue_declare("slow", durable=True, arguments={"x-max-length": 200})
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("slow", lambda *_: None)
    publish(channel, "slow", [b"work"] * 205)
    found = only(api, vhost, lambda one: one["symptoms"])
    assert (found["kind"], found["severity"], found["count"]) == ("slow-consumer", "alarm", 1)
    assert [one["kind"] for one in found["symptoms"]] == ["queue-full"]


@pytest.mark.slow
def test_since_when_is_known_although_nobody_asked(api: API, channel: BlockingChannel, vhost: str) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 10})
    publish(channel, "full", [b"x"] * 10)
    filled = time.time()
    until(lambda: sum(at > filled for at in api.get("history")["at"]) > 12)
    (found,) = incidents(api, vhost)
    assert found["kind"] == "queue-full"
    assert filled - 1 < found["since"] < api.get("history")["at"][-4]


def test_queues_that_are_alike_are_one_incident(api: API, channel: BlockingChannel, vhost: str) -> None:
    names = [f"log.{name}" for name in ("app", "web", "mail", "cron")]
    for name in names:
        channel.queue_declare(name, durable=True)

    def told() -> dict[str, Any] | Literal[False]:
        for name in names:
            publish(channel, name, [b"line"] * 150)
        found = incidents(api, vhost)
        return len(found) == 1 and found[0]["count"] == 4 and found[0]

    found = until(told)
    assert found["pattern"] == found["name"] == "log.*"
    assert sorted(found["names"]) == sorted(names)
    assert found["text"].startswith("4 queues 'log.*' have no consumer: ")
    assert found["messages"] >= 600 and found["growth"] > 0


@pytest.mark.parametrize("by_policy", [False, True], ids=["argument", "policy"])
def test_a_dead_letter_queue_is_advised_of_as_one(
    api: API, channel: BlockingChannel, vhost: str, by_policy: bool
) -> None:
    letters = {} if by_policy else {"x-dead-letter-exchange": "dlx"}
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_declare("graves", durable=True)
    channel.queue_bind("graves", "dlx")
    channel.queue_declare("work", durable=True, arguments=letters)
    if by_policy:
        policy = {"pattern": "^work$", "definition": {"dead-letter-exchange": "dlx"}}
        api.request("PUT", "policies", vhost, "letters", json=policy)

    def told() -> list[dict[str, Any]]:
        publish(channel, "work", [b"bad"] * 120)
        for method, _, _ in channel.consume("work", inactivity_timeout=1):
            if method is None or method.delivery_tag % 120 == 0:
                break
            channel.basic_reject(method.delivery_tag, requeue=False)
        channel.cancel()
        return [one for one in incidents(api, vhost) if one["kind"] == "dead-letters-wait"]

    (found,) = until(told)
    assert found["name"] == "graves" and "x-death" in found["advice"] and "unbind" not in found["advice"]
    assert "Move messages" in found["advice"]


def test_only_the_queue_that_dead_letters_go_to_by_its_name_is_advised_of_as_one(
    api: API, channel: BlockingChannel, vhost: str
) -> None:
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    channel.queue_declare("work", durable=True, arguments=letters)
    for name in ("graves", "lines"):
        channel.queue_declare(name, durable=True)

    def told() -> dict[str, str] | Literal[False]:
        for name in ("graves", "lines"):
            publish(channel, name, [b"x"] * 120)
        kinds = {one["name"]: one["kind"] for one in incidents(api, vhost)}
        return len(kinds) == 2 and kinds

    assert until(told) == {"graves": "dead-letters-wait", "lines": "queue-without-consumer"}


def test_keys_that_wait_for_slow_queues_are_told_of_with_them(api: API, channel: BlockingChannel, vhost: str) -> None:
    channel.exchange_declare("tasks", "x-consistent-hash", durable=True, arguments={"ordered-scaling": True})
    channel.basic_qos(prefetch_count=10)
    for name in ("first", "second", "added"):
        channel.queue_declare(name, durable=True)
        channel.basic_consume(name, lambda *_: None)
    for name in ("first", "second"):
        channel.queue_bind(name, "tasks", "1")
    for number in range(400):
        channel.basic_publish("tasks", str(number), b"before")
    until(lambda: sum(api.counts(name, vhost)[0] for name in ("first", "second")) == 380)
    channel.queue_bind("added", "tasks", "1")
    for number in range(400):
        channel.basic_publish("tasks", str(number), b"after")

    def told() -> list[dict[str, Any]] | Literal[False]:
        found = {one["name"]: one for one in incidents(api, vhost)}
        return found.keys() == {"first", "second"} and [one for one in found.values() if one["symptoms"]]

    (found,) = until(told)
    (waits,) = found["symptoms"]
    held = {one["source"]: one["messages_held"] for one in api.get("fences", vhost)}
    assert (found["kind"], waits["kind"], waits["name"]) == ("slow-consumer", "keys-wait", "added")
    assert found["name"] == max(held, key=held.__getitem__), "the cause is where most wait"
    assert waits["messages"] == sum(held.values()) > 100
    assert f"wait for '{found['name']}' and 1 other: their keys moved" in waits["text"]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("log.app", "log.*"), ("orders-1", "orders-*"), ("part2", "part*"), ("one", "one"), ("a/b/c", "a/b/*"), ("", "")],
)
def test_what_names_have_in_common(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern


@pytest.mark.parametrize(
    ("share", "written"), [(0.0, "0 %"), (0.071, "7.1 %"), (0.125, "13 %"), (0.4, "40 %"), (1.0, "100 %")]
)
def test_a_share_reads_as_in_the_tables_of_the_page(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.slow
def test_dead_letters_are_told_until_they_are_gone(api: API, channel: BlockingChannel, vhost: str) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 0}
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("dying", durable=True, arguments=dead)
    publish(channel, "dying", [b"x"] * 3)
    found = only(api, vhost, lambda one: one["kind"] == "dead-letters-wait")
    assert "'dead' holds 3 dead letters" in found["text"]
    until(lambda: not api.get("queues", vhost, "dead")["message_stats"]["publish_details"]["rate"])
    assert [one["kind"] for one in incidents(api, vhost)] == ["dead-letters-wait"]
    channel.queue_purge("dead")
    until(lambda: not incidents(api, vhost))


@pytest.mark.slow
def test_what_waits_without_a_consumer_is_told_when_publishers_have_ended(
    api: API, channel: BlockingChannel, vhost: str
) -> None:
    channel.queue_declare("left", durable=True)
    publish(channel, "left", [b"x"] * 150)
    found = only(api, vhost, lambda one: "No messages arrive now" in one["text"])
    assert (found["kind"], found["messages"]) == ("queue-without-consumer", 150)


@pytest.mark.slow
def test_the_slow_one_of_several_consumers_is_named(
    api: API, broker: jumpmq.RunningBroker, channel: BlockingChannel, vhost: str
) -> None:
    def consumer(name: str) -> tuple[pika.BlockingConnection, BlockingChannel]:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", broker.port, vhost, client_properties={"connection_name": name}
        )
        connection = pika.BlockingConnection(parameters)
        taking = connection.channel()
        taking.basic_qos(prefetch_count=5)
        return connection, taking

    channel.queue_declare("invoices", durable=True)
    (quick, taking), (slow, holding) = consumer("printer"), consumer("printer-old")

    def print_one(
        channel: BlockingChannel, method: Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        time.sleep(0.01)
        channel.basic_ack(method.delivery_tag)

    taking.basic_consume("invoices", print_one)
    holding.basic_consume("invoices", lambda *_: None)
    with quick, slow:

        def told() -> list[dict[str, Any]]:
            for _ in range(100):
                channel.basic_publish("", "invoices", b"x")
            quick.process_data_events(0.3)
            slow.process_data_events(0)
            return [one for one in incidents(api, vhost) if "'printer-old' takes 0.0/s, the others" in one["text"]]

        assert until(told)


def test_what_is_next_comes_first() -> None:
    def warning(name: str, severity: str = "warning", what: str = "queue", **given: Any) -> Warning:
        return Warning("slow-consumer", severity, what, "/", name, "", "", name if what == "queue" else "", 10, **given)

    told = [
        (warning("late", full_in=14_220.0, growth=3.0), 1.0),
        (warning("growing", growth=50.0), 2.0),
        (warning("soon", full_in=420.0, growth=2.0), 3.0),
        (warning("full", "alarm"), 4.0),
        (warning("node", "alarm", "node"), 5.0),
        (warning("still"), 0.0),
    ]
    assert [one.cause.name for one in by_cause(told)] == ["node", "full", "soon", "late", "growing", "still"]
