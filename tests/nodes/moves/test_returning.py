"""Shards return to a node that joins under the name of a forgotten node."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.cli.commands import run
from tests.etcd import needs_etcd
from tests.waiting import until

from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import etcd

pytestmark = needs_etcd

ONE, TWO = "one@localhost", "two@localhost"
SHARDS = [f"sharding: x - {TWO} - {number}" for number in range(3)]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Nodes:
    """A node, and options for further nodes."""

    def __init__(self, directory: Path, options: tuple[str, ...]) -> None:
        self._directory = directory
        self._options = options
        self.one = self.node("one", ONE)

    def node(self, data: str, name: str, workers: int = 1) -> JumpMQ:
        """Return a node with a data directory, not yet started."""
        return JumpMQ(self._directory / data, name, (*self._options, "--workers", str(workers)))

    @property
    def url(self) -> str:
        """The management of the first node."""
        return f"http://guest:guest@127.0.0.1:{self.one.http_port}"

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Put an object through the management API."""
        requests.put(f"{self.url}/api/{path}", json=body, timeout=10).raise_for_status()

    def shards(self) -> dict[str, str]:
        """Return the nodes of the second node's shards, with a mark during a move."""
        found = {one["name"]: one for one in requests.get(f"{self.url}/api/queues", timeout=10).json()}
        moving = "moving_to", "moving_from"
        return {  # a list made of two nodes' answers may lack a moving queue
            name: "?" if (shard := found.get(name)) is None else shard["node"] + " …" * any(map(shard.get, moving))
            for name in SHARDS
        }

    def ctl(self, *arguments: str) -> None:
        """Run jumpmqctl."""
        result = run("jumpmqctl", *arguments, "--url", self.url)
        assert result.returncode == 0, result.stderr

    def publish(self, first: int, count: int) -> None:
        """Publish numbers to the exchange."""
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.one.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(first, first + count):
                channel.basic_publish("x", f"{number}", b"%d" % number, PERSISTENT)

    def lose_two(self, queue_type: str = "classic") -> None:
        """Start the second node with shards, drain and forget the node; publish 200 messages in all."""
        with self.node("two", TWO) as two:
            pattern = {"pattern": "^x$", "apply-to": "exchanges"}
            self.put("policies/%2F/p", pattern | {"definition": {"shards-per-node": 3, "queue-type": queue_type}})
            self.put("exchanges/%2F/x", {"type": "x-modulus-hash", "durable": True})
            self.publish(0, 100)
            self.ctl("-n", TWO, "drain")
            assert set(self.shards().values()) == {ONE}
            two.stop()
            until(lambda: not self.runs(TWO))
            self.ctl("forget_cluster_node", TWO)
        self.publish(100, 100)

    def runs(self, name: str) -> bool:
        nodes = requests.get(f"{self.url}/api/nodes", timeout=10).json()
        return any(one["running"] for one in nodes if one["name"] == name)

    def homes(self) -> set[int]:
        """The homes of the shards of the second node."""
        found = requests.get(f"{self.url}/api/queues", timeout=10).json()
        return {one["home"] for one in found if one["name"] in SHARDS}

    def wait_for_return(self) -> None:
        """Wait until all shards are at the second node."""
        until(lambda: set(self.shards().values()) == {TWO})


@contextmanager
def nodes(directory: Path) -> Iterator[Nodes]:
    with etcd(directory) as (member,):
        found = Nodes(directory, ("--cluster", "test", "--etcd", member.url))
        with found.one:
            yield found


def consumed(port: int, queue: str, consumers: int, arguments: dict[str, Any] | None = None) -> Counter[int]:
    """Return the messages received by so many consumers of a queue, until no more arrive."""
    found: Counter[int] = Counter()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)

        def take(_channel: object, method: Any, _properties: object, body: bytes) -> None:
            found[int(body)] += 1
            channel.basic_ack(method.delivery_tag)

        for _ in range(consumers):
            channel.basic_consume(queue, take, arguments=arguments)
        quiet = time.monotonic()
        while time.monotonic() < quiet + 0.5:
            before = found.total()
            connection.process_data_events(0.1)
            quiet = time.monotonic() if found.total() != before else quiet
    return found


@pytest.mark.slow
def test_streams_return_to_the_workers_of_a_new_node(tmp_path: Path) -> None:
    with nodes(tmp_path) as cluster:
        cluster.lose_two("stream")
        with cluster.node("anew", TWO, workers=2) as two:
            cluster.wait_for_return()
            cluster.publish(200, 100)
            assert len(cluster.homes()) == 2
            arguments = {"x-stream-offset": "first"}
            here = consumed(two.port, "x", 3, arguments)
            assert here.total() > 100
            assert here + consumed(cluster.one.port, "x", 3, arguments) == Counter(range(300))


@pytest.mark.slow
def test_a_return_goes_on_after_kills_and_is_made_once(tmp_path: Path) -> None:
    with nodes(tmp_path) as cluster:
        cluster.lose_two()
        readers = f"{cluster.url}/api/readers/%2F/g"
        requests.post(f"{readers}/reserve", json={"queues": {SHARDS[0]: 1}}, timeout=10).raise_for_status()
        with cluster.node("anew", TWO) as two:
            until(lambda: [*cluster.shards().values()] == [ONE, TWO, TWO])
            two.kill()
            two.start()
            until(lambda: [*cluster.shards().values()] == [ONE, TWO, TWO])
            until(lambda: "cannot return to this node yet: reader group 'g' has messages" in two.log.read_text())
            cluster.one.kill()
            cluster.one.start()
            readers = f"{cluster.url}/api/readers/%2F/g"
            requests.delete(readers, timeout=10).raise_for_status()
            cluster.wait_for_return()
            cluster.ctl("move_queue", SHARDS[1], "--to", ONE)
            until(lambda: [*cluster.shards().values()] == [TWO, ONE, TWO])
            two.stop()
            two.start()
            until(lambda: cluster.runs(TWO))
            here = consumed(two.port, "x", 2)
            assert here
            assert here + consumed(cluster.one.port, "x", 4) == Counter(range(200))
            assert [*cluster.shards().values()] == [TWO, ONE, TWO]
