"""Streams of a live broker: across restarts and crashes, many readers, retention by policy, over HTTP."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.waiting import until
from tests.wire import Basic, Queue, WireChannel, login

from jumpmq.testing import HOST, JumpMQ

STREAM = {"x-queue-type": "stream"}


def declare(channel: WireChannel, name: str = "s", **arguments: Any) -> str:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return channel.queue(name, durable=True, exclusive=False, arguments={**STREAM, **named})


def publish(channel: WireChannel, first: int, last: int, size: int = 1, name: str = "s") -> None:
    if not channel._published:
        channel.confirm_select()
    for number in range(first, last):
        channel.publish("", name, b"%0*d" % (size, number))
    channel.wait_for_confirms()


def read(channel: WireChannel, offset: Any, count: int, name: str = "s") -> list[int]:
    channel.call(Basic.Qos(prefetch_count=max(count, 1)))
    channel.consume(name, arguments={"x-stream-offset": offset})
    return [int(message.body) for message in channel.take(count)]


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_confirmed_is_there_again(tmp_path: Path, crash: bool) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel)
        channel.queue("classic", durable=True, exclusive=False)
        channel.bind("s", "amq.fanout")
        channel.bind("classic", "amq.fanout")
        publish(channel, 0, 1000)
        channel.publish("amq.fanout", "", b"1000", Basic.Properties(delivery_mode=2))
        channel.wait_for_confirms()
        if crash:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        channel = login(broker.port).channel()
        assert channel.ready("s") == 1001
        assert channel.bodies("classic") == [b"1000"]
        publish(channel, 1001, 1003)
        assert read(channel, "first", 1003) == list(range(1003))


def test_a_deleted_stream_begins_anew(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel)
        publish(channel, 0, 10)
        channel.call(Queue.Delete(queue="s"))
        declare(channel)
        publish(channel, 50, 52)
        assert read(channel, "first", 2) == [50, 51]
        broker.stop()
        assert len(list((tmp_path / "streams").iterdir())) == 1


@pytest.mark.slow
def test_an_unclaimed_stream_can_be_given_to_a_new_one(tmp_path: Path) -> None:
    """An unclaimed stream can be given to a new stream, as documented."""
    streams, unclaimed = tmp_path / "streams", tmp_path / "unclaimed-streams"
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel)
        publish(channel, 0, 10)
        broker.stop()
        (lost,) = streams.iterdir()
        shutil.copytree(lost, streams / "999")
        broker.start()
        channel = login(broker.port).channel()
        assert read(channel, "first", 10) == list(range(10))
        assert [path.name for path in unclaimed.iterdir()] == ["999"]
        before = set(streams.iterdir())
        declare(channel, "again")
        (given,) = set(streams.iterdir()) - before
        broker.stop()
        for path in (unclaimed / "999").iterdir():
            path.rename(given / path.name)
        broker.start()
        channel = login(broker.port).channel()
        publish(channel, 10, 12, name="again")
        assert read(channel, "first", 12, name="again") == list(range(12))


def test_twenty_readers_at_once(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker, login(broker.port) as connection:
        channel = connection.channel()
        declare(channel)
        readers = [connection.channel() for _ in range(20)]
        for reader in readers:
            reader.call(Basic.Qos(prefetch_count=5000))
            reader.consume("s", arguments={"x-stream-offset": "first"})
        publish(channel, 0, 2000)
        for reader in readers:
            assert [int(message.body) for message in reader.take(2000)] == list(range(2000))


def test_retention_by_argument_and_policy(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel, stream_max_segment_size_bytes=20_000)
        for first in range(0, 100, 10):
            publish(channel, first, first + 10, size=3000)
        assert channel.ready("s") == 100
        policy: dict[str, Any] = {"pattern": "^s$", "definition": {"max-length-bytes": 50_000}}
        answer = requests.put(
            f"http://{HOST}:{broker.http_port}/api/policies/%2F/p", json=policy, auth=("guest", "guest"), timeout=60
        )
        assert answer.status_code == 201
        left = channel.ready("s")
        assert 10 < left < 40
        assert read(channel, "first", left) == list(range(100 - left, 100))


@pytest.mark.slow
def test_old_messages_go(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel, stream_max_segment_size_bytes=1000, max_age="2s")
        publish(channel, 0, 3, size=2000)
        time.sleep(2.1)
        publish(channel, 3, 5, size=2000)
        until(lambda: channel.ready("s") <= 2)
        assert read(channel, "first", 2) == [3, 4]


def test_over_http(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        declare(channel)
        publish(channel, 0, 3)
        url = f"http://{HOST}:{broker.http_port}/api/queues/%2F/s"
        shown = requests.get(url, auth=("guest", "guest"), timeout=60).json()
        expected = {"type": "stream", "messages": 3, "members": [shown["node"]], "online": [shown["node"]]}
        assert {key: shown[key] for key in expected} == expected
        got: dict[str, Any] = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        for method, path, what, body in (
            ("POST", "/get", "basic.get", got),
            ("DELETE", "/contents", "queue.purge", None),
        ):
            answer = requests.request(method, url + path, json=body, auth=("guest", "guest"), timeout=60)
            assert answer.status_code == 400
            assert f"{what} not supported by stream queues queue 's' in vhost '/'" in answer.json()["reason"]
