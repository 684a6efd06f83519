"""`jumpmq migrate --follow` moves present and new messages exactly once, across kills of all participants."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
import requests
from tests.brokers import confirming_channel
from tests.cli.commands import command
from tests.waiting import until
from typer.testing import CliRunner

import jumpmq
from jumpmq.cli.jumpmq import app
from jumpmq.cli.migration.draining import Drain, MigrationError, Target
from jumpmq.cli.migration.following import Bridge, BridgePace
from jumpmq.cli.migration.source import Source, suit
from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost
from jumpmq.management import ClientTLS, ManagementClient
from jumpmq.testing import JumpMQ, RabbitMQ
from jumpmq.testing.ports import free_ports


@pytest.fixture(scope="module")
def old() -> Iterator[jumpmq.RunningBroker]:
    """The source broker."""
    with jumpmq.running(node="old@host") as running:
        yield running


@pytest.fixture(scope="module")
def new() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(node="new@host") as running:
        yield running


@pytest.fixture
def vhost(request: pytest.FixtureRequest, old: jumpmq.RunningBroker, new: jumpmq.RunningBroker) -> str:
    """A virtual host of both brokers for a single test."""
    name = request.node.name
    for broker in (old, new):
        requests.put(f"{broker.http_url}/api/vhosts/{name}").raise_for_status()
    return str(name)


def bridge(
    old: jumpmq.RunningBroker, new: jumpmq.RunningBroker, vhost: str, said: list[str], user: str = "guest:guest"
) -> Bridge:
    address = AMQPAddress.parse(f"amqp://{user}@127.0.0.1:{old.port}/{vhost}")
    place = Source(address, ClientTLS(), ManagementClient(old.http_url), vhost)
    pace = BridgePace(pause=0.02, definitions=0.05, patience=0.1, backoff=(0.01, 0.05), lock=0.3)
    return Bridge(place, ManagementClient(new.http_url), dict, said.append, pace)


@contextlib.contextmanager
def following_in_thread(one: Bridge) -> Iterator[None]:
    one.begin()
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield
    finally:
        one.end()
        thread.join(30)
        one.close()


def taken(port: int, vhost: str, queue: str) -> list[bytes]:
    found = []
    with confirming_channel(port, vhost) as opened:
        while (body := opened.basic_get(queue, auto_ack=True)[2]) is not None:
            found.append(body)
    return found


def ready(broker: jumpmq.RunningBroker, vhost: str, queue: str) -> int:
    return int(requests.get(f"{broker.http_url}/api/queues/{vhost}/{queue}").json().get("messages", 0))


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_what_comes_is_moved_definitions_too(old: Any, new: Any, vhost: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "priority": {"x-max-priority": 3},
        "log": {"x-queue-type": "stream"},
    }
    said: list[str] = []
    one = bridge(old, new, vhost, said)
    with confirming_channel(old.port, vhost) as opened:
        for queue, arguments in kinds.items():
            opened.queue_declare(queue, durable=True, arguments=arguments)
        opened.queue_declare("passing", auto_delete=True)
        with following_in_thread(one):
            for body in numbers(300):
                for queue in [*kinds, "passing"]:
                    opened.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
            opened.queue_declare("late", durable=True)
            opened.basic_publish("", "late", b"late")
            until(lambda: all(ready(new, vhost, queue) == 300 for queue in [*kinds, "passing"]))
            until(lambda: ready(new, vhost, "late"))
            until(lambda: one.rest == 0)
            assert "1,201 messages moved" in one.progress()
        opened.queue_declare("passing", passive=True)  # it outlives the last consumer
    for queue in ("plain", "priority", "passing"):
        assert taken(new.port, vhost, queue) == numbers(300), queue
    assert said == []


def test_a_full_queue_holds_its_messages_and_no_other(old: Any, new: Any, vhost: str) -> None:
    """A full target queue delays its own messages only, and a quorum queue loses none to its delivery limit."""
    limited = {"x-queue-type": "quorum", "x-delivery-limit": 2}
    policy: dict[str, Any] = {"pattern": "^full$", "definition": {"max-length": 1, "overflow": "reject-publish"}}
    requests.put(f"{new.http_url}/api/policies/{vhost}/short", json=policy).raise_for_status()
    said: list[str] = []
    with confirming_channel(old.port, vhost) as opened:
        opened.queue_declare("full", durable=True, arguments=limited)
        opened.queue_declare("other", durable=True)
        for body in numbers(100):
            opened.basic_publish("", "full", body)
        with following_in_thread(bridge(old, new, vhost, said)):
            until(lambda: any("the queue is full" in line for line in said))
            for body in numbers(100):
                opened.basic_publish("", "other", body)
            until(lambda: ready(new, vhost, "other") == 100)
            requests.delete(f"{new.http_url}/api/policies/{vhost}/short").raise_for_status()
            until(lambda: ready(new, vhost, "full") == 100)
    assert taken(new.port, vhost, "full") == numbers(100)
    assert said == [f"queue 'full' in vhost '{vhost}': {said[0].split(': ', 1)[1]}"]


def test_a_second_bridge_is_refused(old: Any, new: Any, vhost: str) -> None:
    with confirming_channel(old.port, vhost) as opened:
        opened.queue_declare("q")
    first, second = bridge(old, new, vhost, []), bridge(old, new, vhost, [])
    with (
        following_in_thread(first),
        pytest.raises(MigrationError, match=f"another .* moves the queues of vhost '{vhost}'"),
    ):
        second.begin()
    second.close()
    with following_in_thread(second):
        pass


def test_a_queue_that_is_gone_here_is_declared_again(old: Any, new: Any, vhost: str) -> None:
    said: list[str] = []
    with confirming_channel(old.port, vhost) as opened:
        opened.queue_declare("gone", durable=True)
        with following_in_thread(bridge(old, new, vhost, said)):
            requests.delete(f"{new.http_url}/api/queues/{vhost}/gone").raise_for_status()
            opened.basic_publish("", "gone", b"1")
            until(lambda: ready(new, vhost, "gone") == 1)
    assert taken(new.port, vhost, "gone") == [b"1"]


def test_rights_that_are_lacking_are_told_and_hold_up_no_other_queue(old: Any, new: Any, vhost: str) -> None:
    """A user without the permission to declare the lock continues without it."""
    api = f"{old.http_url}/api"
    requests.put(f"{api}/users/reader", json={"password": "x", "tags": "administrator"}).raise_for_status()
    rights = {"configure": "^$", "write": "^$", "read": "^open$"}
    requests.put(f"{api}/permissions/{vhost}/reader", json=rights).raise_for_status()
    said: list[str] = []
    one = bridge(old, new, vhost, said, user="reader:x")
    with confirming_channel(old.port, vhost) as opened:
        for queue in ("closed", "open"):
            opened.queue_declare(queue, durable=True)
            opened.basic_publish("", queue, b"1")
        with following_in_thread(one):
            until(lambda: ready(new, vhost, "open") and said)
    assert taken(old.port, vhost, "closed") == [b"1"]
    assert said[0].startswith(f"queue 'closed' in vhost '{vhost}': ACCESS_REFUSED")


ODD = "[/red] \x1b]0;title\x07 é\u202e {0} %s"


def test_names_of_any_characters_are_moved_and_do_nothing_to_a_terminal(old: Any, new: Any, vhost: str) -> None:
    with confirming_channel(old.port, vhost) as opened:
        opened.queue_declare(ODD, durable=True)
        opened.basic_publish("", ODD, b"1")
        words = ["migrate", "--from", f"amqp://127.0.0.1:{old.port}/{vhost}", "--management", old.http_url]
        once = CliRunner().invoke(app, [*words, "--to", new.http_url])
        assert (once.exit_code, once.stdout) == (0, "definitions are copied, 1 messages of 1 queues are moved\n")
        assert "\x1b" not in once.stderr
    said: list[str] = []
    one = bridge(old, new, vhost, said)
    one.begin()
    one.close()
    one._failed(one._lanes[vhost, ODD], Exception("x"))
    assert one.progress().isprintable()
    assert taken(new.port, vhost, ODD) == [b"1"]


def drain(old: Any, new: Any, vhost: str, queue: str = "q") -> Drain:
    """Move a queue by a new process."""
    target = Target(ManagementClient(new.http_url), vhost, queue, "test")
    made = Drain(queue, target, lambda count: None)
    suit(made, requests.get(f"{old.http_url}/api/queues/{vhost}/{queue}").json())
    return made


def forgets_acks(amqp: AMQPConnection) -> None:
    """A connection that loses its acknowledgements, as in a kill of the source."""
    amqp.ack = lambda tag, *, multiple=True: None  # type: ignore[method-assign]


def loses_acks(amqp: AMQPConnection) -> None:
    def ack(tag: int, *, multiple: bool = True) -> None:
        raise ConnectionLost("killed")

    amqp.ack = ack  # type: ignore[method-assign]


def connected(old: Any, vhost: str) -> AMQPConnection:
    return AMQPConnection(AMQPAddress.parse(f"amqp://guest:guest@127.0.0.1:{old.port}/{vhost}"))


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-message-ttl": 600_000}])
def test_a_chunk_that_was_not_acknowledged_is_not_published_again(
    old: Any, new: Any, request: Any, arguments: dict[str, Any]
) -> None:
    """An unacknowledged, already published chunk is not published again, though its queue has changed meanwhile."""
    vhost = f"unacknowledged {len(str(arguments))}"
    for broker in (old, new):
        requests.put(f"{broker.http_url}/api/vhosts/{vhost}").raise_for_status()
        with confirming_channel(broker.port, vhost) as opened:
            opened.queue_declare("q", durable=True, arguments=arguments)
    with confirming_channel(old.port, vhost) as opened:
        for body in numbers(50):
            opened.basic_publish("", "q", body, pika.BasicProperties(priority=1))
        with connected(old, vhost) as first:
            loses_acks(first)
            with pytest.raises(ConnectionLost):
                drain(old, new, vhost).run(first)
        until(lambda: ready(old, vhost, "q") == 50)
        left = set[bytes]()
        if arguments:
            for body in numbers(10, 50):
                opened.basic_publish("", "q", body, pika.BasicProperties(priority=4))
            left.add(opened.basic_get("q", auto_ack=True)[2])
        with connected(old, vhost) as second:
            drain(old, new, vhost).run(second)
        assert opened.queue_declare("q", passive=True).method.message_count == 0
    found = taken(new.port, vhost, "q")
    assert sorted(found) == sorted(set(numbers(60 if arguments else 50)) - (left & set(numbers(10, 50))))


def test_acknowledgements_that_the_source_forgot_are_passed_over(old: Any, new: Any, vhost: str) -> None:
    for broker in (old, new):
        with confirming_channel(broker.port, vhost) as opened:
            opened.queue_declare("q", durable=True)
    moved = None
    with confirming_channel(old.port, vhost) as opened:
        for body in [*numbers(120), b"same", b"same"]:
            opened.basic_publish("", "q", body)
        moved = drain(old, new, vhost)
        with connected(old, vhost) as first:
            forgets_acks(first)
            moved.run(first, 1)
            moved.run(first)
        moved.source_lost()
        until(lambda: ready(old, vhost, "q") == 122)
        opened.basic_publish("", "q", b"0")  # an equal message, not delivered before
        with connected(old, vhost) as second:
            moved.run(second)
    assert taken(new.port, vhost, "q") == [*numbers(120), b"same", b"same", b"same", b"same", b"0"]
    assert ready(old, vhost, "q") == 0


def test_a_bridge_without_messages_makes_no_sense() -> None:
    words = ["migrate", "--follow", "--definitions-only", "--from", "amqp://h", "--to", "http://h"]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stderr) == (
        2,
        "jumpmq: --follow moves messages, and --definitions-only moves none\n",
    )


QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "priority": {"x-max-priority": 5},
    "expiring": {"x-message-ttl": 3_600_000},
    "log": {"x-queue-type": "stream"},
}


class Publisher(threading.Thread):
    """Publishes distinct messages to all queues until stopped.

    Attributes:
        confirmed: confirmed messages, by queue.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.confirmed: dict[str, list[bytes]] = defaultdict(list)
        self.stopping = threading.Event()

    def await_more(self) -> None:
        """Wait until further messages are confirmed."""
        known = len(self.confirmed["log"])
        until(lambda: len(self.confirmed["log"]) > known + 20)

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            with contextlib.suppress(pika.exceptions.AMQPError, OSError), confirming_channel(self.port) as opened:
                while not self.stopping.is_set():
                    number += 1
                    for queue in QUEUES:
                        properties = pika.BasicProperties(delivery_mode=2, priority=number % 5)
                        opened.basic_publish("", queue, b"%s %d" % (queue.encode(), number), properties, mandatory=True)
                        self.confirmed[queue].append(b"%s %d" % (queue.encode(), number))
            time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)
def test_each_message_once_through_kills_of_all(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    ports = ["--port", str(port), "--http-port", str(http_port)]
    with RabbitMQ() as rabbitmq, JumpMQ(arguments=ports) as broker, (tmp_path / "log").open("w") as log:
        url = f"http://guest:guest@127.0.0.1:{http_port}"
        line = command(
            *("jumpmq", "migrate", "--follow", "--from", f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}"),
            *("--management", f"http://guest:guest@127.0.0.1:{rabbitmq.http_port}", "--to", url),
        )

        def begin() -> subprocess.Popen[bytes]:
            return subprocess.Popen(line, stderr=log, stdout=log)

        with confirming_channel(rabbitmq.port) as opened:
            for queue, arguments in QUEUES.items():
                opened.queue_declare(queue, durable=True, arguments=arguments)
        publisher, bridging = Publisher(rabbitmq.port), begin()
        publisher.start()
        try:
            for kill in ["bridge", "rabbitmq", "jumpmq", "bridge"]:
                publisher.await_more()
                time.sleep(random.uniform(0, 1))
                if kill == "bridge":
                    bridging.kill()
                    bridging.wait()
                    bridging = begin()
                else:
                    killed = rabbitmq if kill == "rabbitmq" else broker
                    killed.kill()
                    killed.start()
            publisher.stopping.set()
            publisher.join()
            found: dict[str, list[bytes]] = defaultdict(list)

            def arrived() -> bool:
                for queue in QUEUES:
                    if queue == "log":
                        shown = requests.get(f"{url}/api/queues/%2F/{queue}").json()
                        found[queue] = [b""] * shown.get("messages", 0)
                    else:
                        with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):  # not declared yet
                            found[queue] += taken(port, "/", queue)
                return all(len(found[queue]) >= len(publisher.confirmed[queue]) for queue in QUEUES)

            until(arrived)
            bridging.send_signal(signal.SIGTERM)
            assert bridging.wait(60) == 0
            arrived()
        finally:
            publisher.stopping.set()
            bridging.kill()
            bridging.wait()
    said = (tmp_path / "log").read_text()
    assert "Traceback" not in said
    assert "0 are left" in said
    for queue, confirmed in publisher.confirmed.items():
        if queue == "log":  # may have further unconfirmed messages
            assert len(confirmed) <= len(found[queue]) <= len(confirmed) + 4
            continue
        assert len(found[queue]) == len(set(found[queue])), f"{queue}: some came twice"
        assert set(found[queue]) >= set(confirmed), f"{queue}: some are lost"
        if queue != "priority":
            assert found[queue] == sorted(found[queue], key=lambda body: int(body.split()[1])), queue
