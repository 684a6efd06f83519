"""Messages moved out of a queue: dead letters back to their source queue, or any message to a target."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.http.api import API

import jumpmq
from jumpmq.amqp.messages import Message
from jumpmq.broker.bulk import moving_messages
from jumpmq.testing import JumpMQ

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def fill(channel: BlockingChannel, queue: str, count: int, properties: pika.BasicProperties = PERSISTENT) -> None:
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, properties)


def drained(channel: BlockingChannel, queue: str) -> list[tuple[Any, Any, bytes]]:
    """The messages of a queue, in order."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got)
    return found


def numbers(channel: BlockingChannel, queue: str) -> list[int]:
    return [int(body) for _, _, body in drained(channel, queue)]


def consumed(channel: BlockingChannel, queue: str) -> list[int]:
    """The numbers of many messages, read by a consumer for speed."""
    count = channel.queue_declare(queue, passive=True).method.message_count
    found = [int(body) for _, _, body in islice(channel.consume(queue, auto_ack=True), count)]
    channel.cancel()
    return found


def move(api: API, source: str, **body: Any) -> requests.Response:
    return api.request("POST", "queues", "/", source, "contents", "move", json=body)


def move_until_it_dies(api: API, **chosen: Any) -> None:
    with pytest.raises(requests.RequestException):
        while True:
            move(api, "a", queue="b", **chosen)


@contextmanager
def amqp(broker: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        yield connection.channel()


@pytest.fixture
def queues(channel: BlockingChannel) -> None:
    """Queues of all kinds, including a dead-lettering queue."""
    for kind in ("classic", "quorum"):
        channel.queue_declare(kind, durable=True, arguments={"x-queue-type": kind})
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare("x", "direct", durable=True)
    channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", durable=True, arguments=arguments)
    channel.queue_bind("work", "x", "key")


@pytest.mark.parametrize("source", ["classic", "quorum"])
@pytest.mark.parametrize("destination", ["dead", "quorum", "classic", "stream"])
def test_everything_goes_in_order(
    api: API, channel: BlockingChannel, queues: None, source: str, destination: str
) -> None:
    if source == destination:
        answer = move(api, source, queue=destination)
        assert (answer.status_code, answer.json()["reason"]) == (
            400,
            f"queue '{source}' cannot be its own destination",
        )
        return
    fill(channel, source, 450)
    assert move(api, source, queue=destination).json() == {"moved": 450, "kept": {}}
    wait_for(lambda: api.counts(source) == (0, 0))
    if destination == "stream":
        found = api.get("queues", "/", "stream")
        assert found["messages"] == 450
        return
    found = drained(channel, destination)
    assert [int(body) for _, _, body in found] == list(range(450))
    method, properties, _ = found[0]
    assert (method.exchange, method.routing_key, method.redelivered) == ("", destination, False)
    assert properties.delivery_mode == 2


def test_messages_go_that_are_on_disk_only(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker, amqp(broker) as channel:
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
        fill(channel, "a", 6)
    with jumpmq.running(data_dir=tmp_path) as broker, amqp(broker) as channel:
        assert move(API(broker.http_url), "a", queue="b").json() == {"moved": 6, "kept": {}}
        assert numbers(channel, "b") == list(range(6))


def test_few_are_moved_at_once_where_each_takes_long(
    api: API, channel: BlockingChannel, queues: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move to an exchange of thousands of queues takes few messages per slice: one may take a whole time slice."""
    counts: list[int] = []
    publish = moving_messages._Moving._publish

    def noted(moving: moving_messages._Moving, taken: list[Message]) -> moving_messages._Step:
        counts.append(len(taken))
        return publish(moving, taken)

    monkeypatch.setattr(moving_messages._Moving, "_publish", noted)
    fill(channel, "classic", 20)
    monkeypatch.setattr(moving_messages, "SLICE", 0.0)
    assert move(api, "classic", queue="dead").json()["moved"] == 20
    assert counts[:3] == [8, 8, 4]
    counts.clear()
    monkeypatch.setattr(moving_messages, "SLICE", 3600.0)
    assert move(api, "dead", queue="classic").json()["moved"] == 20
    assert counts[:2] == [8, 12]


def test_dead_letters_go_back_where_they_died(api: API, channel: BlockingChannel, queues: None) -> None:
    for number in range(20):
        channel.basic_publish("x", "key", b"%d" % number, pika.BasicProperties(headers={"h": 1}, delivery_mode=2))
    wait_for(lambda: api.counts("work")[0] == 20)
    tags = [channel.basic_get("work")[0].delivery_tag for _ in range(20)]
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    wait_for(lambda: api.counts("dead")[0] == 20)
    channel.basic_publish("", "dead", b"no dead letter", PERSISTENT)
    forged = pika.BasicProperties(headers={"x-death": [{"queue": 7, "reason": "x" * 999}]}, delivery_mode=2)
    channel.basic_publish("", "dead", b"forged", forged)
    gone = {"x-death": [{"queue": "gone", "exchange": "x", "routing-keys": ["key"]}]}
    channel.basic_publish("", "dead", b"gone", pika.BasicProperties(headers=gone, delivery_mode=2))
    wait_for(lambda: api.counts("dead")[0] == 23)
    told = api.get("queues", "/", "dead", "deaths")
    of_work = {"reason": "rejected", "queue": "work", "exchange": "x", "messages": 20}
    assert max(len(one["reason"]) for one in told["deaths"]) == 255
    assert (told["deaths"][0], told["letters"], told["searched"], told["whole"]) == (of_work, 22, 23, True)
    answer = move(api, "dead", origin=True).json()
    assert answer["moved"] == 20
    assert sorted(answer["kept"].values()) == [1, 2]
    assert "no queue 'gone' in vhost '/'" in answer["kept"]
    found = drained(channel, "work")
    assert [int(body) for _, _, body in found] == list(range(20))
    method, properties, _ = found[0]
    assert (method.exchange, method.routing_key, properties.headers["h"]) == ("x", "key", 1)
    assert [body for _, _, body in drained(channel, "dead")] == [b"no dead letter", b"forged", b"gone"]


def test_to_an_exchange_with_their_own_keys_or_another(api: API, channel: BlockingChannel, queues: None) -> None:
    fill(channel, "classic", 10)
    assert move(api, "classic", exchange="x", routing_key="key", count=4).json() == {"moved": 4, "kept": {}}
    answer = move(api, "classic", exchange="x").json()
    assert answer == {"moved": 0, "kept": {"it reaches no queue": 6}}
    assert numbers(channel, "work") == [0, 1, 2, 3]
    assert numbers(channel, "classic") == [4, 5, 6, 7, 8, 9]


def test_what_is_refused_keeps_its_place(api: API, channel: BlockingChannel, queues: None) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    fill(channel, "classic", 10)
    answer = move(api, "classic", queue="full").json()
    assert answer["moved"] == 3 and sum(answer["kept"].values()) == 7
    assert numbers(channel, "full") == [0, 1, 2]
    assert numbers(channel, "classic") == list(range(3, 10))


def delete(api: API, source: str, *wanted: int) -> requests.Response:
    return api.request("POST", "queues", "/", source, "contents", "delete", json={"numbers": list(wanted)})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_chosen_messages_are_deleted_for_good(tmp_path: Path, kind: str) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker, amqp(broker) as channel:
        api = API(broker.http_url)
        channel.queue_declare("a", durable=True, arguments={"x-queue-type": kind})
        fill(channel, "a", 600)
        channel.basic_get("a")  # holds number 1
        found = api.get("queues", "/", "a", "browse", count=1000)["messages"]
        chosen = [one["seq"] for one in found if int(one["payload"]) % 2 or int(one["payload"]) < 6]
        first = chosen[0] - 1
        assert delete(api, "a", first, *chosen, chosen[0], 1 << 62).json() == {"deleted": len(chosen)}
        assert delete(api, "a", *chosen).json() == {"deleted": 0}
    with jumpmq.running(data_dir=tmp_path) as broker, amqp(broker) as channel:
        assert numbers(channel, "a") == [0, *range(6, 600, 2)]


def test_who_may_not_purge_may_not_delete_and_nor_may_anybody_in_a_stream_or_group(
    api: API, channel: BlockingChannel, queues: None
) -> None:
    fill(channel, "classic", 3)
    fill(channel, "stream", 3)
    api.request("PUT", "users", "eraser", json={"password": "eraser", "tags": "management"})
    limited = API(api.address.replace("//", "//eraser:eraser@"))
    api.request("PUT", "permissions", "/", "eraser", json={"configure": ".*", "write": ".*", "read": "^x$"})
    assert delete(limited, "classic", 1, 2, 3).status_code == 401
    assert "is a stream" in delete(api, "stream", 1).json()["reason"]
    for body in ({}, {"numbers": [-1]}, {"numbers": "1"}, {"numbers": [1], "count": 1}):
        answer = api.request("POST", "queues", "/", "classic", "contents", "delete", json=body)
        assert answer.status_code == 400, body
    assert api.request("POST", "queues", "/", "gone", "contents", "delete", json={"numbers": [1]}).status_code == 404
    assert api.counts("classic") == (3, 0)
    channel.queue_declare("shared", durable=True, arguments={"x-slots": 4})
    channel.basic_consume("shared", lambda *_: None, arguments={"x-consumer-group": "g"})
    assert delete(api, "shared", 1).status_code == 400


def test_requests_that_make_no_sense(api: API, channel: BlockingChannel, queues: None) -> None:
    for body, status, reason in (
        ({}, 400, "exactly one of 'queue', 'exchange' and 'origin' must be given"),
        ({"queue": "dead", "origin": True}, 400, "exactly one of 'queue', 'exchange' and 'origin' must be given"),
        ({"queue": "dead", "routing_key": "k"}, 400, "'routing_key' needs an 'exchange'"),
        ({"queue": "nowhere"}, 404, "no queue 'nowhere' in vhost '/'"),
        ({"exchange": "nowhere"}, 404, "no exchange 'nowhere' in vhost '/'"),
        ({"queue": "dead", "count": -1}, 400, "'count' must be"),
    ):
        answer = move(api, "classic", **body)
        assert answer.status_code == status, answer.text
        assert reason in answer.json()["reason"]
    assert "is a stream" in move(api, "stream", queue="dead").json()["reason"]


def test_rights_are_those_of_a_client(api: API, channel: BlockingChannel, queues: None) -> None:
    fill(channel, "classic", 1)
    api.request("PUT", "users", "mover", json={"password": "mover", "tags": "management"})
    limited = API(api.address.replace("//", "//mover:mover@"))
    for read, write, allowed in ((".*", "", False), ("", ".*", False), (".*", "^x$", False), ("classic", ".*", True)):
        api.request("PUT", "permissions", "/", "mover", json={"configure": "", "write": write, "read": read})
        answer = move(limited, "classic", queue="dead")
        assert (answer.status_code == 200) is allowed, answer.text
    assert answer.json() == {"moved": 1, "kept": {}}


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_a_kill(tmp_path: Path) -> None:
    """A message moved between classic queues is in exactly one queue, at any time of a kill."""
    for attempt in range(4):
        with JumpMQ(tmp_path / str(attempt)) as broker:
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
                channel = connection.channel()
                channel.queue_declare("a", durable=True)
                channel.queue_declare("b", durable=True)
                channel.tx_select()  # a single commit: a confirm per message takes a minute on a slow disk
                for number in range(5000):
                    channel.basic_publish("", "a", b"%d" % number, PERSISTENT)
                channel.tx_commit()
            api = API(f"http://127.0.0.1:{broker.http_port}")
            chosen = {"key": "a"} if attempt % 2 else {}
            moving = threading.Thread(target=move_until_it_dies, args=(api,), kwargs=chosen)
            moving.start()
            time.sleep(0.01 + 0.03 * attempt)
            broker.kill()
            moving.join()
            broker.start()
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
                channel = connection.channel()
                found = consumed(channel, "b")
                assert found + consumed(channel, "a") == list(range(5000))


def test_an_operator_moves_dead_letters_by_the_command_line(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, queues: None
) -> None:
    fill(channel, "classic", 30)
    for options, status, lines in (
        (("--to-queue", "dead", "--count", "10"), 0, ["10 messages moved"]),
        (("--to-exchange", "x"), 69, ["20 messages stay: it reaches no queue", "0 messages moved"]),
        (("--to-exchange", "x", "--routing-key", "key"), 0, ["20 messages moved"]),
    ):
        result = run("jumpmqctl", "move_messages", "classic", *options, "--url", broker.http_url)
        assert (result.returncode, result.stdout.splitlines()[-len(lines) :]) == (status, lines)
    for wrong in ((), ("--to-queue", "a", "--to-origin"), ("--to-queue", "a", "--routing-key", "k")):
        assert run("jumpmqctl", "move_messages", "classic", *wrong, "--url", broker.http_url).returncode == 64
