"""A stream moves between node processes killed meanwhile: every message is counted."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from fuzzing.workers import Consumer, Ledger, Publisher
from tests.etcd import etcd, needs_etcd
from tests.waiting import until

from jumpmq.testing import JumpMQ

pytestmark = [needs_etcd, pytest.mark.slow]

FILLED = 600
"""Number of messages in the stream at the start, each of 50,000 octets."""


class GroupConsumer(Consumer):
    """Consumes, as a member of a group, messages published after its first consumer arrived."""

    def arguments(self, queue: str) -> dict[str, Any]:
        return {"x-consumer-group": "g", "x-stream-offset": "next"}


class Cluster:
    """Two nodes."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        (member,) = stack.enter_context(etcd(directory))
        options = ("--cluster", "test", "--etcd", member.url)
        names = "one@localhost", "two@localhost"
        self.nodes = [stack.enter_context(JumpMQ(directory / name, name, options)) for name in names]

    def ask(self, method: str, path: str, **body: Any) -> requests.Response | None:
        """Return the answer of the first reachable node."""
        for node in self.nodes:
            try:
                url = f"http://guest:guest@127.0.0.1:{node.http_port}/api/{path}"
                return requests.request(method, url, timeout=20, **body)
            except requests.RequestException:
                pass
        return None

    def stream(self) -> dict[str, Any]:
        """Return the stream's status; empty while its home is down."""
        answer = self.ask("GET", "queues/%2F/s")
        shown = {} if answer is None or answer.status_code != 200 else answer.json()
        return {} if shown.get("state") == "down" else shown

    def stands(self) -> bool:
        """Return True if the stream is at one node, and does not move."""
        shown = self.stream()
        return "node" in shown and not shown.keys() & {"moving_to", "moving_from"}

    def begin(self) -> tuple[JumpMQ, JumpMQ]:
        """Start the move to the second node; return the old and the new node."""
        here = self.stream()["node"]
        old, new = self.nodes if self.nodes[0].node == here else reversed(self.nodes)
        body = {"action": "move", "node": new.node}

        def begun() -> bool:
            answer = self.ask("POST", "queues/%2F/s/actions", json=body)
            return answer is not None and answer.status_code == 204

        until(begun)
        return old, new


def is_copied(old: JumpMQ, new: JumpMQ) -> bool:
    return any(path.stat().st_size for path in new.data_dir.glob("streams/*.coming/*"))


def has_moved(old: JumpMQ, new: JumpMQ) -> bool:
    return any(path.stat().st_size for path in new.data_dir.glob("streams/*[0-9]/*"))


@pytest.mark.parametrize("when", [is_copied, has_moved])
def test_either_node_is_killed(tmp_path: Path, when: Callable[[JumpMQ, JumpMQ], bool]) -> None:
    ledger = Ledger()
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        ports = [node.port for node in cluster.nodes]
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports[0])) as connection:
            channel = connection.channel()
            arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 5_000_000}
            channel.queue_declare("s", durable=True, arguments=arguments)
            channel.confirm_delivery()
            for _ in range(FILLED):
                channel.basic_publish("", "s", b"1" * 50_000)
        clients = [
            kind(lambda: cluster.nodes[int(time.monotonic()) % 2].port, ledger, ["s"], stop_event(stack))
            for kind in (GroupConsumer, Publisher)
        ]
        clients[0].start()
        until(lambda: cluster.stream().get("consumers"))
        clients[1].start()
        for victim in (0, 1):
            pair = cluster.begin()
            until(lambda: when(*pair) or cluster.stands())  # noqa: B023
            pair[victim].kill()
            pair[victim].start()
            until(cluster.stands)
            assert cluster.stream()["node"] == pair[1].node
        confirmed = ledger.confirmed["s"] + 20
        until(lambda: ledger.confirmed["s"] >= confirmed)
        clients[1].stop.set()
        clients[1].join(20)
        until(lambda: len(ledger.acknowledged["s"]) >= ledger.confirmed["s"])
        clients[0].stop.set()
        clients[0].join(20)
        assert ledger.problems() == []
        found = read(cluster)
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert all(body == b"1" * 50_000 for _, body in found[:FILLED])
    numbers = [int(body) for _, body in found[FILLED:]]
    once = [number for place, number in enumerate(numbers) if number not in numbers[:place]]
    assert once == list(range(len(once)))
    assert len(once) >= ledger.confirmed["s"]
    assert {number for number in numbers if numbers.count(number) > 1} <= ledger.again["s"]


def stop_event(stack: ExitStack) -> Any:
    """An event set at the end."""
    stop = threading.Event()
    stack.callback(stop.set)
    return stop


def read(cluster: Cluster) -> list[tuple[int, bytes]]:
    """Return all rows of the stream, with offsets."""
    count = cluster.stream()["messages"]
    found: list[tuple[int, bytes]] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        for method, properties, body in channel.consume("s", arguments={"x-stream-offset": "first"}):
            found.append((properties.headers["x-stream-offset"], body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == count:
                return found
    raise AssertionError
