"""`jumpmq migrate` moves the definitions and messages of a real RabbitMQ, exactly once, also across a kill."""

import json
import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.brokers import confirming_channel
from tests.cli.commands import command, run
from tests.waiting import until

import jumpmq
from jumpmq.amqp.properties import Properties
from jumpmq.cli.migration.rings import RingsUnknown, read_rings
from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress
from jumpmq.testing import RabbitMQ, RabbitMQNode

pytestmark = pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)

KILLS = 4


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQ]:
    with RabbitMQ() as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(data_dir=tmp_path / "data") as running:
        yield running


def urls(rabbitmq: RabbitMQ, broker: jumpmq.RunningBroker, vhost: str = "") -> list[str]:
    return [
        *("--from", f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}{vhost}"),
        *("--management", f"http://guest:guest@127.0.0.1:{rabbitmq.http_port}"),
        *("--to", broker.http_url),
    ]


def put(rabbitmq: RabbitMQ, path: str, body: Any) -> None:
    url = f"http://127.0.0.1:{rabbitmq.http_port}/api/{path}"
    requests.put(url, json=body, auth=("guest", "guest")).raise_for_status()


def bodies(port: int, queue: str, vhost: str = "/") -> list[bytes]:
    found = []
    with confirming_channel(port, vhost) as opened:
        while (body := opened.basic_get(queue, auto_ack=True)[2]) is not None:
            found.append(body)
    return found


def properties_in(broker: jumpmq.RunningBroker, queue: str) -> list[Properties]:
    """The properties of a queue's messages, as stored."""
    found = Client(BrokerAddress(broker.http_url)).ready([[queue, 0, 1000]], ["properties"])
    return [Properties.parse(one) for batch in found for one in batch.column(0).to_pylist()]


def test_definitions_and_messages_are_moved(rabbitmq: RabbitMQ, broker: jumpmq.RunningBroker) -> None:
    put(rabbitmq, "users/alice", {"password": "secret", "tags": "management"})
    put(rabbitmq, "permissions/%2F/alice", {"configure": "", "write": "", "read": "^orders"})
    put(rabbitmq, "policies/%2F/limited", {"pattern": "^orders", "definition": {"max-length": 5000}})
    kinds = {"orders-1": "classic", "orders-2": "quorum", "log": "stream"}
    with confirming_channel(rabbitmq.port) as opened:
        opened.exchange_declare("orders", "topic", durable=True)
        for queue, kind in kinds.items():
            opened.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
            opened.queue_bind(queue, "orders", f"{queue}.#")
            for number in range(300):
                properties = pika.BasicProperties(delivery_mode=2, message_id=str(number), headers={"n": number})
                opened.basic_publish("orders", f"{queue}.{number}", b"%d" % number, properties)
        opened.basic_publish("orders", "orders-1.large", b"x" * 10_000_000)
        opened.basic_get("orders-2")  # goes back when the channel ends, and the broker counts a delivery
    result = run("jumpmq", "migrate", *urls(rabbitmq, broker), timeout=300)
    assert (result.returncode, result.stdout) == (
        0,
        "definitions are copied, 901 messages of 3 queues are moved\n",
    ), result.stderr
    for queue in kinds:
        found = properties_in(broker, queue)[:300]
        assert [(one.message_id, [(name, value) for name, _, value in one.headers or []]) for one in found] == [
            (str(number), [("n", number)]) for number in range(300)
        ]
    expected = [b"%d" % number for number in range(300)]
    with confirming_channel(broker.port) as opened:
        method, properties, body = opened.basic_get("orders-1", auto_ack=True)
        assert (method.exchange, method.routing_key, method.redelivered) == ("orders", "orders-1.0", False)
        assert (body, properties.message_id, properties.headers["n"], properties.delivery_mode) == (b"0", "0", 0, 2)
    assert bodies(broker.port, "orders-1") == [*expected[1:], b"x" * 10_000_000]
    assert bodies(broker.port, "orders-2") == expected
    assert bodies(rabbitmq.port, "orders-1") == bodies(rabbitmq.port, "orders-2") == []
    whoami = requests.get(f"http://127.0.0.1:{broker.http_port}/api/whoami", auth=("alice", "secret")).json()
    assert whoami["tags"] == ["management"]
    policies = requests.get(f"{broker.http_url}/api/policies").json()
    assert [(one["name"], one["definition"]) for one in policies] == [("limited", {"max-length": 5000})]
    streamed = requests.get(f"{broker.http_url}/api/queues/%2F/log").json()
    assert (streamed["type"], streamed["messages"]) == ("stream", 300)
    again = run("jumpmq", "migrate", *urls(rabbitmq, broker), timeout=300)
    assert again.stdout == "definitions are copied, 0 messages of 0 queues are moved\n", again.stderr


HASHES = {"ring": "x-consistent-hash", "h": "x-consistent-hash", "m": "x-modulus-hash"}
KEYS = [f"key-{number}" for number in range(300)]


def hashed(rabbitmq: RabbitMQ, vhost: str) -> None:
    """Two sharded exchanges, and an exchange whose bindings do not show the order of its ring."""
    put(rabbitmq, f"vhosts/{vhost}", {})
    put(rabbitmq, f"permissions/{vhost}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    definition = {"shards-per-node": 3, "routing-key": "1"}
    put(rabbitmq, f"policies/{vhost}/p", {"pattern": "^[hm]$", "apply-to": "exchanges", "definition": definition})
    with confirming_channel(rabbitmq.port, vhost) as opened:
        for exchange, kind in HASHES.items():
            opened.exchange_declare(exchange, kind, durable=True)
        for queue, weight in (("c", "2"), ("a", "1"), ("d", "5"), ("b", "3")):
            opened.queue_declare(queue, durable=True)
            opened.queue_bind(queue, "ring", weight)
        opened.queue_unbind("c", "ring", "2")  # later queues move down, and the queue returns as the last
        opened.queue_bind("c", "ring", "2")


def places(port: int, vhost: str, queues: list[str]) -> dict[tuple[str, bytes], str]:
    """Take all messages from queues. Return the queue by exchange and key."""
    found = {}
    with confirming_channel(port, vhost) as opened:
        for queue in queues:
            while (method := opened.basic_get(queue, auto_ack=True)[0]) is not None:
                found[method.exchange, method.routing_key] = queue
    return found


def send(port: int, vhost: str, keys: list[str]) -> None:
    with confirming_channel(port, vhost) as opened:
        for exchange in HASHES:
            for key in keys:
                opened.basic_publish(exchange, key, key.encode(), pika.BasicProperties(delivery_mode=2))


def queues_of(url: str, vhost: str) -> list[str]:
    return sorted(one["name"] for one in requests.get(f"{url}/api/queues/{vhost}").json())


def moved_alike(nodes: list[RabbitMQ], broker: jumpmq.RunningBroker, vhost: str, known: list[str]) -> None:
    """Move sharded and other hash exchanges: every key keeps its queue, and the pseudo-queue delivers all messages."""
    rabbitmq, old_url = nodes[0], f"http://guest:guest@127.0.0.1:{nodes[0].http_port}"
    hashed(rabbitmq, vhost)
    shards = 2 * 3 * len(nodes)
    until(lambda: len(queues_of(old_url, vhost)) == 4 + shards)
    send(rabbitmq.port, vhost, KEYS)
    requests.put(f"{broker.http_url}/api/vhosts/{vhost}").raise_for_status()
    result = run("jumpmq", "migrate", *urls(rabbitmq, broker, f"/{vhost}"), *known, timeout=300)
    assert result.returncode == 0, result.stderr
    assert f"{3 * len(KEYS)} messages of {4 + shards} queues are moved" in result.stdout
    assert "keys" not in result.stderr
    requests.put(
        f"{broker.http_url}/api/permissions/{vhost}/guest", json={"configure": ".*", "write": ".*", "read": ".*"}
    ).raise_for_status()
    queues = queues_of(broker.http_url, vhost)
    assert len(queues) == 4 + shards
    before = places(broker.port, vhost, queues)
    assert len(before) == 3 * len(KEYS)
    send(broker.port, vhost, KEYS)
    assert places(broker.port, vhost, queues) == before
    for exchange in ("h", "m"):
        shown = requests.get(f"{broker.http_url}/api/exchanges/{vhost}/{exchange}/shards").json()
        assert [one["number"] for one in shown] == list(range(shards // 2))
    send(broker.port, vhost, [f"new-{number}" for number in range(500)])
    with confirming_channel(broker.port, vhost) as opened:
        for exchange in ("h", "m"):
            got: list[Any] = []
            for _ in range(shards // 2):
                opened.basic_consume(exchange, lambda *delivered, got=got: got.append(delivered[3]), auto_ack=True)
            while len(got) < 500:
                opened.connection.process_data_events(time_limit=10)
            assert len(set(got)) == 500
    again = run("jumpmq", "migrate", *urls(rabbitmq, broker, f"/{vhost}"), *known, timeout=300)
    assert "definitions are copied, 0 messages" in again.stdout, again.stderr
    assert queues_of(broker.http_url, vhost) == queues


def test_shards_and_rings_are_taken_over(rabbitmq: RabbitMQ, broker: jumpmq.RunningBroker, tmp_path: Path) -> None:
    hashed(rabbitmq, "unknown")
    requests.put(f"{broker.http_url}/api/vhosts/unknown").raise_for_status()
    result = run("jumpmq", "migrate", *urls(rabbitmq, broker, "/unknown"), timeout=300)
    assert (
        "note: exchange 'ring' in vhost 'unknown': the order of the 4 destinations on RabbitMQ's ring is unknown, "
        "and the order of the bindings is used; if the orders differ, about 68% of the keys go to another"
        in result.stderr
    )
    hashed(rabbitmq, "hashed")  # includes the rings in the file
    (tmp_path / "rings").write_text(rabbitmq.ctl("eval", run("jumpmq", "migrate-rings").stdout.strip()))
    moved_alike([rabbitmq], broker, "hashed", ["--rings", str(tmp_path / "rings")])


@pytest.mark.slow
def test_shards_and_rings_of_a_cluster_are_taken_over(broker: jumpmq.RunningBroker, tmp_path: Path) -> None:
    with RabbitMQNode() as first, RabbitMQNode(first) as second:
        command = tmp_path / "rabbitmqctl"
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in first._environment().items())
        line = shlex.join(first._command("rabbitmqctl", "--node", first.node))
        command.write_text(f'#!/bin/sh\n{exports}\ncd {first.directory}\nexec {line} "$@"\n')
        command.chmod(0o700)
        moved_alike([first, second], broker, "cluster", ["--rabbitmqctl", str(command)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "this is not the output of `rabbitmqctl eval` for rings"),
        ("<<>>", "0"),
        ("Error: {:undef", "this is not the output of `rabbitmqctl eval` for rings"),
        ('<<"|2F 78 queue:61:0:0:1 queue:62:2:2:1">>', "damaged"),
        ('<<"|2F 78 queue:61:0:3:1">>', "damaged"),
        ('<<"|2F 78 queue:6:0:0:1">>', "damaged"),
        ('<<"|2F">>', "damaged"),
    ],
)
def test_rings_are_read_or_refused(text: str, says: str) -> None:
    try:
        assert str(len(read_rings(text))) == says
    except RingsUnknown as error:
        assert says in str(error)


def test_a_long_ring_comes_in_pieces_and_names_have_any_octets() -> None:
    text = '<<"|2F 78 queue:FF3A0A:2:4:3 que"\n  "ue:C3A9:0:1:2 exchange:61:5:5:1|2F 79">>\n'
    found = read_rings(text)
    assert [tuple(one) for one in found["/", "x"]] == [
        ("queue", "é", 2),
        ("queue", "\udcff:\n", 3),
        ("exchange", "a", 1),
    ]
    assert found["/", "y"] == []


def test_a_move_that_is_killed_goes_on_where_it_was(rabbitmq: RabbitMQ, broker: jumpmq.RunningBroker) -> None:
    put(rabbitmq, "vhosts/killed", {})
    put(rabbitmq, "permissions/killed/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    requests.put(f"{broker.http_url}/api/vhosts/killed").raise_for_status()
    same = {"same": "classic", "same quorum": "quorum"}
    with confirming_channel(rabbitmq.port, "killed") as opened:
        opened.queue_declare("numbered", durable=True)
        for queue, kind in same.items():
            opened.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        for number in range(6_000):
            opened.basic_publish("", "numbered", b"%d" % number)
            for queue in same:
                if number < 2_000:
                    opened.basic_publish("", queue, b"the same")
    line = command("jumpmq", "migrate", *urls(rabbitmq, broker, "/killed"))
    for _ in range(KILLS):
        with subprocess.Popen(line, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ)) as move:
            time.sleep(random.uniform(0.5, 2.0))
            move.send_signal(signal.SIGKILL)
    result = run("jumpmq", "migrate", *urls(rabbitmq, broker, "/killed"), timeout=300)
    assert result.returncode == 0, result.stderr
    requests.put(
        f"{broker.http_url}/api/permissions/killed/guest", json={"configure": ".*", "write": ".*", "read": ".*"}
    ).raise_for_status()
    assert bodies(broker.port, "numbered", "killed") == [b"%d" % number for number in range(6_000)]
    for queue in same:
        assert len(bodies(broker.port, queue, "killed")) == 2_000


def test_control_c_ends_a_move_in_a_line(rabbitmq: RabbitMQ, broker: jumpmq.RunningBroker) -> None:
    """Control-C ends a running move with a single line."""
    put(rabbitmq, "vhosts/interrupted", {})
    put(rabbitmq, "permissions/interrupted/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbitmq.port, "interrupted")) as connection:
        opened = connection.channel()
        opened.queue_declare("many", durable=True)
        for _ in range(20_000):
            opened.basic_publish("", "many", b"")
    line = command("jumpmq", "migrate", *urls(rabbitmq, broker, "/interrupted"))
    queue = f"{broker.http_url}/api/queues/interrupted/many"
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as move:
        until(lambda: requests.get(queue).json().get("messages") or move.poll() is not None)
        move.send_signal(signal.SIGINT)
        said = move.communicate()[1]
    assert "Traceback" not in said
    assert move.returncode == 0 or "jumpmq: interrupted: the same command continues the move" in said
    result = run("jumpmq", "migrate", *urls(rabbitmq, broker, "/interrupted"), timeout=300)
    assert result.returncode == 0, result.stderr
    assert requests.get(queue).json()["messages"] == 20_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--from", "http://h", "--to", "http://h"], "--from: 'http' is neither amqp nor amqps"),
        (
            ["--from", "amqp://127.0.0.1:1", "--management", "http://127.0.0.1:1", "--to", "http://127.0.0.1:1"],
            "Connection refused; RabbitMQ's management plugin is needed, at the URL of --management",
        ),
    ],
)
def test_what_makes_no_sense_is_a_line(arguments: list[str], text: str) -> None:
    result = run("jumpmq", "migrate", *arguments)
    assert result.returncode == 1
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1, json.dumps(result.stderr)
