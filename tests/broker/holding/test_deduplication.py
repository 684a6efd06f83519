"""Duplicates by ``x-deduplication-header`` are confirmed, counted and dropped: by exchanges, and by queues."""

from collections import Counter
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.broker.holding.connecting import connected, refused
from tests.http.api import API
from tests.several_processes import running
from tests.waiting import until

from jumpmq.testing import JumpMQ


def declare(channel: BlockingChannel, name: str, *queues: str, size: Any = 1000, **arguments: Any) -> None:
    given = {"x-cache-size": size} | {f"x-cache-{key}": value for key, value in arguments.items()}
    channel.exchange_declare(name, "x-message-deduplication", durable=True, arguments=given)
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, name, "ignored")


def publish(
    channel: BlockingChannel, exchange: str, identity: Any, body: str = "", key: str = "k", **headers: Any
) -> None:
    sent = headers if identity is None else {"x-deduplication-header": identity, **headers}
    properties = pika.BasicProperties(headers=sent, delivery_mode=2)
    channel.basic_publish(exchange, key, (body or repr(identity)).encode(), properties, mandatory=True)


def bodies(channel: BlockingChannel, queue: str, count: int) -> list[str]:
    """Wait for so many messages of a queue; return all present."""
    found: list[str] = []

    def take() -> bool:
        while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(answer[2].decode())
        return len(found) >= count

    until(take)
    publish(channel, "", None, "end", queue)
    until(lambda: take() and found[-1] == "end")
    return found[:-1]


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_an_exchange_passes_each_message_once_to_every_queue(channel: BlockingChannel, api: API) -> None:
    declare(channel, "once", "one", "other")
    for identity in ("a", "b", "a", 5, "5", 5, True, None, None, "b", 2**40, 2**40, ["x"], ["x"]):
        publish(channel, "once", identity)  # a duplicate is confirmed, and not returned
    expected = ["'a'", "'b'", "5", "'5'", "True", str(2**40)]
    for queue in ("one", "other"):
        found = bodies(channel, queue, 10)
        assert [one for one in found if one not in ("None", "['x']")] == expected
        assert Counter(found)["None"] == Counter(found)["['x']"] == 2
    shown = api.get("exchanges", "/", "once")
    assert shown["cache_queue"] == "amq.deduplication.once"
    assert shown["cache_info"] == {"entries": 6, "bytes": 6 * 170, "duplicates": 4, "size": 1000}


def test_the_oldest_are_forgotten_where_there_are_too_many(channel: BlockingChannel, api: API) -> None:
    declare(channel, "few", "fewer", size="3")
    for number in (1, 2, 3, 4, 2, 1):
        publish(channel, "few", number)
    assert bodies(channel, "fewer", 5) == ["1", "2", "3", "4", "1"]
    assert api.get("exchanges", "/", "few")["cache_info"]["entries"] == 3


def test_an_entry_ends_by_the_time_of_its_exchange_or_its_message(channel: BlockingChannel, api: API) -> None:
    declare(channel, "timed", "timely", ttl=3_600_000)
    publish(channel, "timed", "long")
    briefly: dict[str, Any] = {"x-cache-ttl": 1}
    publish(channel, "timed", "short", **briefly)
    until(lambda: api.get("exchanges", "/", "timed")["cache_info"]["entries"] == 1)
    for identity in ("long", "short"):
        publish(channel, "timed", identity)
    assert bodies(channel, "timely", 3) == ["'long'", "'short'", "'short'"]


def test_headers_of_other_exchanges_pass_unchanged(channel: BlockingChannel) -> None:
    """Headers for later exchanges stay in the message, and the expiry there begins on arrival."""
    declare(channel, "first")
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.exchange_bind("later", "first")
    channel.queue_declare("behind", durable=True)
    channel.queue_bind("behind", "later")
    later: dict[str, Any] = {"x-delay": 30}
    for _ in range(2):
        publish(channel, "first", "x", **later)
    until(lambda: ready(channel, "behind") == 1)
    _, properties, _ = channel.basic_get("behind", auto_ack=True)
    assert properties.headers == {"x-deduplication-header": "x", "x-delay": -30}


def ring(channel: BlockingChannel, *names: str) -> None:
    """Declare a cycle of exchanges with a memory of one message."""
    for name in names:
        declare(channel, name, f"{name}-q", size=1)
    for source, destination in zip(names, [*names[1:], names[0]], strict=True):
        channel.exchange_bind(destination, source)


def at_once(channel: BlockingChannel, exchange: str, count: int, **headers: Any) -> None:
    """Dead-letter messages together, more than an exchange remembers until the return."""
    arguments = {"x-dead-letter-exchange": exchange}
    channel.queue_declare("burst", durable=True, arguments=arguments)
    for number in range(count):
        publish(channel, "", number, key="burst", **headers)
    tags = [channel.basic_get("burst")[0].delivery_tag for _ in range(count)]
    channel.basic_nack(tags[-1], multiple=True, requeue=False)


def test_exchanges_in_a_ring_pass_each_message_once(channel: BlockingChannel) -> None:
    def keeps_one(name: str) -> bool:
        return ready(channel, f"amq.deduplication.{name}") == 1

    ring(channel, "round", "and-round", "again")
    at_once(channel, "round", 20, **{"x-jumpmq-passed": "a publisher's"})
    for name in ("round", "and-round", "again"):
        assert bodies(channel, f"{name}-q", 20) == [str(number) for number in range(20)]
        until(partial(keeps_one, name))
    publish(channel, "again", 7)
    until(lambda: ready(channel, "and-round-q") == 1)
    _, properties, _ = channel.basic_get("and-round-q", auto_ack=True)
    assert properties.headers == {"x-deduplication-header": 7}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [{"workers": 3}, {"nodes": 2}])
def test_a_ring_over_several_processes_passes_each_message_once(processes: dict[str, int]) -> None:
    with running(**processes) as broker, connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        ring(channel, "round", "and-round", "again")
        at_once(channel, "round", 20)
        for name in ("round", "and-round", "again"):
            assert bodies(channel, f"{name}-q", 20) == [str(number) for number in range(20)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"),
        ({"x-cache-size": 0}, "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"),
        ({"x-cache-size": "many"}, "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"),
        ({"x-cache-size": True}, "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"),
        ({"x-cache-size": 1, "x-cache-ttl": -1}, "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"),
        (
            {"x-cache-size": 1, "x-cache-persistence": "tape"},
            "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'",
        ),
    ],
)
def test_exchanges_that_cannot_be(broker: JumpMQ, arguments: dict[str, Any], text: str) -> None:
    act = lambda other: other.exchange_declare("bad", "x-message-deduplication", arguments=arguments)  # noqa: E731
    assert refused(broker, act) == (406, f"PRECONDITION_FAILED - {text}")


def test_queues_take_a_boolean(broker: JumpMQ, channel: BlockingChannel) -> None:
    channel.queue_declare("any", arguments={"x-cache-size": 0}, exclusive=True)  # means nothing to a queue
    for value, text in (("yes", "invalid arg 'x-message-deduplication'"), (1, "invalid arg 'x-message-deduplication'")):
        arguments = {"x-message-deduplication": value}
        code, found = refused(broker, methodcaller("queue_declare", "bad", arguments=arguments))
        assert (code, text in found) == (406, True)
    stream = {"x-queue-type": "stream", "x-message-deduplication": True}
    assert refused(broker, lambda other: other.queue_declare("bad", durable=True, arguments=stream))[0] == 406


def test_nobody_but_the_exchange_uses_its_queue(broker: JumpMQ, channel: BlockingChannel, api: API) -> None:
    declare(channel, "own", "owned")
    publish(channel, "own", "a")
    for act in (
        lambda other: other.basic_get("amq.deduplication.own"),
        lambda other: other.queue_delete("amq.deduplication.own"),
        lambda other: other.queue_bind("amq.deduplication.own", "amq.fanout"),
    ):
        assert refused(broker, act)[0] == 403
    assert api.request("DELETE", "queues", "/", "amq.deduplication.own", "messages", "1").status_code == 400
    channel.exchange_delete("own")
    assert refused(broker, lambda other: other.queue_declare("amq.deduplication.own", passive=True))[0] == 404


def test_purging_its_queue_has_an_exchange_forget(channel: BlockingChannel, api: API) -> None:
    declare(channel, "forgets", "told")
    publish(channel, "forgets", "a")
    until(lambda: ready(channel, "told") == 1)
    assert api.request("DELETE", "queues", "/", "amq.deduplication.forgets", "contents").status_code == 204
    publish(channel, "forgets", "a")
    assert bodies(channel, "told", 2) == ["'a'"] * 2


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_has_no_two_of_the_same(channel: BlockingChannel, api: API, kind: str) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"dead-{kind}"}
    channel.queue_declare(f"dead-{kind}", durable=True)
    given = {"x-queue-type": kind, "x-message-deduplication": True, **dead}
    channel.queue_declare(kind, durable=True, arguments=given)

    def accepts(identity: str) -> bool:
        before = ready(channel, kind)
        publish(channel, "", identity, key=kind)
        return ready(channel, kind) == before + 1

    assert accepts("a")
    assert not accepts("a")  # it is ready
    assert accepts("b")
    (frame, _, _) = channel.basic_get(kind)
    assert not accepts("a")  # it is unacknowledged
    channel.basic_nack(frame.delivery_tag, requeue=True)
    assert not accepts("a")
    (frame, _, _) = channel.basic_get(kind)
    channel.basic_ack(frame.delivery_tag)
    gone = "a" if kind == "classic" else "b"  # a quorum queue requeues at the end
    assert accepts(gone)
    (frame, _, _) = channel.basic_get(kind)
    channel.basic_reject(frame.delivery_tag, requeue=False)
    until(lambda: ready(channel, f"dead-{kind}") == 1)
    assert accepts("b" if kind == "classic" else "a")
    channel.queue_purge(kind)
    assert accepts("a")
    publish(channel, "", "short", key=kind)
    info = api.get("queues", "/", kind)
    if kind == "classic":
        info = info["backing_queue_status"]["message_deduplication_cache_info"]
        assert (info["entries"], info["duplicates"]) == (2, 3)


def test_what_expired_or_was_pushed_out_may_come_again(channel: BlockingChannel) -> None:
    limits = {"x-message-deduplication": True, "x-max-length": 2}
    channel.queue_declare("short", durable=True, arguments=limits)
    for identity in ("a", "b", "c", "a", "c"):
        publish(channel, "", identity, key="short")
    assert bodies(channel, "short", 2) == ["'c'", "'a'"]
    brief = {"x-message-deduplication": True, "x-message-ttl": 1}
    channel.queue_declare("brief", durable=True, arguments=brief)
    publish(channel, "", "a", key="brief")
    until(lambda: not ready(channel, "brief"))
    channel.queue_declare("refusing", durable=True, arguments=limits | {"x-overflow": "reject-publish"})
    for identity in ("a", "b", "a", "b"):
        publish(channel, "", identity, key="refusing")  # a duplicate is confirmed, not refused
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, "", "c", key="refusing")


@pytest.mark.slow
def test_publishers_that_repeat_after_each_kill_are_once(broker: JumpMQ) -> None:
    """Messages repeated until their confirm, and after each kill, are delivered once."""
    with connected(broker) as connection:
        channel = connection.channel()
        declare(channel, "sure", "surely", persistence="disk")
        declare(channel, "light", "lightly")
        arguments = {"x-message-deduplication": True}
        channel.queue_declare("present", durable=True, arguments=arguments)
    sent = 0
    for kill in range(3):
        with suppress(pika.exceptions.AMQPError), connected(broker) as connection:
            channel = connection.channel()  # no confirm is waited for: the kill finds some on their way
            for number in range(max(0, sent - 60), sent + 60):
                publish(channel, "sure", number, str(number))
                publish(channel, "light", number, str(number))
                publish(channel, "", number, str(number), key="present")
            if not kill:
                connection.process_data_events(0)
            broker.kill()
        broker.start()
        with connected(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(max(0, sent - 60), sent + 60):
                publish(channel, "sure", number, str(number))
                publish(channel, "", number, str(number), key="present")
        sent += 60
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("surely", "present"):
            found = Counter(bodies(channel, queue, sent))
            assert found == {str(number): 1 for number in range(sent)}, queue
        publish(channel, "light", 0, "again")  # an exchange with entries in memory has forgotten
        until(lambda: "again" in bodies(channel, "lightly", 1))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [{"workers": 3}, {"nodes": 3}])
def test_messages_are_once_over_all_processes_and_while_the_entries_move(processes: dict[str, int]) -> None:
    with running(**processes) as broker, connected(broker) as connection, connected(broker) as second:
        channels = [one.channel() for one in (connection, second)]
        for channel in channels:
            channel.confirm_delivery()
        declare(channels[0], "spread", *(f"q{number}" for number in range(4)))
        api = API(f"http://guest:guest@127.0.0.1:{broker.http_port}")
        for number in range(100):
            for channel in channels:
                publish(channel, "spread", number, str(number))
        home = api.get("queues", "/", "amq.deduplication.spread")["node"]
        nodes = [node["name"] for node in api.get("nodes")]
        move = {"action": "move"}
        if len(nodes) > 1:
            move["node"] = next(name for name in nodes if name != home)
        api.post("queues", "/", "amq.deduplication.spread", "actions", body=move)
        for number in range(50, 150):
            for channel in channels:
                publish(channel, "spread", number, str(number))
        for queue in ("q0", "q3"):
            found = Counter(bodies(channels[0], queue, 150))
            assert found == {str(number): 1 for number in range(150)}
        until(lambda: (api.get("exchanges", "/", "spread")["cache_info"] or {"entries": 0})["entries"] == 150)
