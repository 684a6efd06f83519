"""Nodes of a cluster as processes, with copies of home 1: start, stop, configuration, messages of a queue."""

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pika
from pika.exceptions import AMQPError
from tests.cli.commands import run

from jumpmq.nodes.etcd.client import Etcd, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.replication.configuration import Configuration
from jumpmq.replication.wanted import Wanted
from jumpmq.testing import JumpMQ
from jumpmq.testing.ports import accepts_clients

KEYS = Keys("test")
NAMES = ["n1@host", "n2@host", "n3@host"]
PATIENCE = 90
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Nodes:
    """Nodes of a cluster, and the address of their etcd.

    Args:
        directory: parent of the nodes' data directories.
        url: address of etcd.
        options: further options of `jumpmq serve`, by the name of the node.
    """

    def __init__(self, directory: Path, url: str, options: Mapping[str, Sequence[str]]) -> None:
        self.url = url
        cluster = ("--cluster", "test", "--etcd", url)
        self.all = [Node(directory / name, name, (*cluster, *given)) for name, given in options.items()]

    def __enter__(self) -> Self:
        try:
            for node in self.all:
                node.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def configuration(self, home: int = 1) -> Configuration:
        return asyncio.run(self._get(home))

    async def _get(self, home: int) -> Configuration:
        client = Etcd([self.url])
        try:
            found = await client.get(KEYS.home(home))
            assert found is not None
            return Configuration.from_json(found.value)
        finally:
            await client.close()

    def want(self, wanted: Wanted, home: int = 1) -> None:
        async def want() -> None:
            client = Etcd([self.url])
            await client.transaction([], [put(KEYS.wanted(home), wanted.to_json())])
            await client.close()

        asyncio.run(want())

    def copied(self, copies: int = 3) -> None:
        """Copy home 1 to so many nodes; wait until the set has all, and the home's node accepts clients."""
        self.want(Wanted.of(NAMES[0], NAMES, copies))
        until(lambda: len(self.configuration().set) == copies)
        served_again(self.all[0])

    def stop(self) -> None:
        for node in self.all:
            node.close()


class Node(JumpMQ):
    """A node that may restart by itself."""

    @property
    def parameters(self) -> pika.ConnectionParameters:
        ports = re.findall(r"amqp://[^\s/]*:(\d+)\b", self.log.read_text(errors="replace"))
        return pika.ConnectionParameters("127.0.0.1", int(ports[-1]))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def served(node: Node, queue: str) -> int:
    """Wait until a node answers for a queue; return the number of its messages."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with pika.BlockingConnection(node.parameters) as connection:
                return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
        except (AMQPError, OSError):
            assert time.monotonic() < end
            time.sleep(0.1)


def served_again(node: Node) -> None:
    """Wait until a restarted node accepts clients."""
    until(lambda: accepts_clients(node.parameters.port))


def published(node: Node, queue: str, numbers: range, arguments: dict[str, Any] | None = None) -> None:
    with pika.BlockingConnection(node.parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish("", queue, b"%d" % number, PERSISTENT)


def taken(node: Node, queue: str) -> list[int]:
    with pika.BlockingConnection(node.parameters) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(int(got[2]))
        return found


def forced(node: Node, url: str) -> subprocess.CompletedProcess[str]:
    """Make a stopped node's copy of home 1 the leader."""
    where = ("--data-dir", node.data_dir, "--node", node.node, "--cluster", "test", "--etcd", url)
    return run("jumpmq", "force-leader", "1", *where)
