"""The operators' verbs `move_queue` and `drain`."""

import json
from typing import Any

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.cli.verbs.control import Failure
from tests.etcd import needs_etcd
from tests.several_nodes import SeveralNodes

import jumpmq

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def queues_of(url: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in requests.get(f"{url}/api/queues", timeout=10).json()}


def test_a_queue_moves_from_worker_to_worker() -> None:
    with jumpmq.running(workers=2) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            for number in range(10):
                channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
            for home in ("2", "1"):
                result = run("jumpmqctl", "move_queue", "q", "--home", home, "--url", broker.http_url)
                shown = queues_of(broker.http_url)["q"]
                assert shown["home"] == int(home)
                assert result.stdout.endswith(f"Queue 'q' is on node {shown['node']}, at home {home}\n")
                listed = run("jumpmqctl", "-q", "list_queues", "name", "home", "--url", broker.http_url)
                assert f"q\t{home}\n" in listed.stdout
            found = [channel.basic_get("q", auto_ack=True)[2] for _ in range(10)]
            assert [int(body) for body in found] == list(range(10))
        for options, status, reason in (
            (("none",), 64, "Queue not found"),
            (("q", "--home", "7"), 69, "queue 'q' in vhost '/' cannot be moved: there is no home 7"),
            (("q", "--to", "other@host"), 69, "Node other@host could not be contacted"),
            (("q", "--to", "x", "--home", "1"), 64, "give --to or --home, not both"),
        ):
            result = run("jumpmqctl", "move_queue", *options, "--url", broker.http_url)
            assert result.returncode == status
            assert reason in result.stderr


def test_a_broker_alone_has_nowhere_to_move_a_queue_to(
    running: jumpmq.RunningBroker, channel: BlockingChannel, failure: Failure
) -> None:
    channel.queue_declare("stays", durable=True)
    assert failure("move_queue", "stays") == (69, "Error:\nno other node runs\n")


def test_a_queue_that_spark_reads_stays() -> None:
    with jumpmq.running(workers=2) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"1", PERSISTENT)
            body = {"queues": {"q": 1}}
            answer = requests.post(f"{broker.http_url}/api/readers/%2F/g/reserve", json=body, timeout=10)
            assert answer.status_code == 200, answer.text
        result = run("jumpmqctl", "move_queue", "q", "--url", broker.http_url)
        assert result.returncode == 69
        assert "reader group 'g' has messages of it; end its query, or release the group" in result.stderr


@pytest.mark.slow
@needs_etcd
@pytest.mark.parametrize("again", [False, True])
def test_a_node_is_drained(again: bool) -> None:
    with SeveralNodes(2) as broker:
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            names = [f"q{number}" for number in range(8)]
            for name in names:
                channel.queue_declare(name, durable=True)
                for number in range(20):
                    channel.basic_publish("", name, b"%d" % number, PERSISTENT)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            for number in range(20):
                channel.basic_publish("", "s", b"%d" % number)
            channel.queue_declare("mine", exclusive=True)
            there = queues_of(url)["s"]["node"]
            for _ in range(1 + again):
                result = run("jumpmqctl", "-n", there, "drain", "--url", url)
                assert result.returncode == 0, result.stderr
                left = "No queue is left on the node." if there != queues_of(url)["mine"]["node"] else "1 queue stays"
                assert left in result.stdout
            found = queues_of(url)
            del found["mine"]  # ends with its connection, without a failure
            assert {name for name in found if found[name]["node"] == there} == set()
            assert json.dumps(found).count("moving_from") == 0
            channel.basic_qos(prefetch_count=20)
            offsets = []
            for _, properties, body in channel.consume("s", arguments={"x-stream-offset": 5}):
                offsets.append((properties.headers["x-stream-offset"], int(body)))
                if len(offsets) == 15:
                    break
            assert offsets == [(number, number) for number in range(5, 20)]
            channel.cancel()
            for name in names:
                bodies = [int(channel.basic_get(name, auto_ack=True)[2]) for _ in range(20)]
                assert bodies == list(range(20))


@needs_etcd
def test_a_stream_that_is_damaged_stays() -> None:
    with SeveralNodes(2) as broker:
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            for number in range(20):
                channel.basic_publish("", "s", b"%d" % number)
        (segment,) = broker.directory.glob("**/*.segment")
        octets = bytearray(segment.read_bytes())
        octets[500] ^= 1
        segment.write_bytes(octets)
        there = queues_of(url)["s"]["node"]
        reason = f"{segment.name} is damaged 0 octets from its start: offset 0 and others cannot be read"
        drained = run("jumpmqctl", "-n", there, "drain", "--url", url)
        assert drained.returncode == 69
        assert "1 queue stays on the node:" in drained.stdout
        assert reason in drained.stdout
        assert "1 durable queue could not be moved: do not forget the node" in drained.stderr
        moved = run("jumpmqctl", "move_queue", "s", "--url", url)
        assert (moved.returncode, f"Queue 's' stays on node {there}" in moved.stderr) == (69, True)
        assert reason in moved.stderr
        stays = run("jumpmqctl", "move_queue", "s", "--to", there, "--url", url)
        assert stays.stdout.endswith(f"Queue 's' is on node {there}\n")
