"""Clients with several addresses of a cluster reconnect to a running node after a kill."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.clients.installed import JARS, has_java
from tests.clients.programmes import FOLDER
from tests.etcd import etcd, needs_etcd

from jumpmq.testing import JumpMQ

pytestmark = [needs_etcd, pytest.mark.slow]

QUEUE = "kept"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[JumpMQ]]:
    """Three nodes; the last has a durable queue."""
    with ExitStack() as stack:
        (member,) = stack.enter_context(etcd(tmp_path))
        options = ("--cluster", "test", "--etcd", member.url)
        found = [
            stack.enter_context(JumpMQ(tmp_path / f"node-{number}", f"n{number}@localhost", options))
            for number in range(3)
        ]
        with pika.BlockingConnection(pika.ConnectionParameters(port=found[2].port)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
        yield found


def kill(nodes: list[JumpMQ], port: int) -> int:
    """Kill the node at a port, of the first two. Return the port of the remaining node."""
    killed, other = sorted(nodes[:2], key=lambda node: node.port != port)
    killed.kill()
    return other.port


@pytest.mark.skipif(
    not has_java,
    reason="the Java client is not installed (apt-get install default-jdk-headless librabbitmq-client-java)",
)
def test_the_java_client_recovers_connection_queues_and_consumers(nodes: list[JumpMQ]) -> None:
    java = ["java", "-cp", os.pathsep.join(map(str, JARS)), str(FOLDER / "RecoveringClient.java")]
    ports = [str(node.port) for node in nodes[:2]]
    with subprocess.Popen([*java, QUEUE, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        connected = int(client.stdout.readline().removeprefix("connected: "))
        other = kill(nodes, connected)
        printed, errors = client.communicate(timeout=150)
    assert printed.splitlines() == [f"recovered: {other}", "received: [durable, fanout message]"], errors


def test_pika_takes_the_next_address(nodes: list[JumpMQ]) -> None:
    parameters = [pika.ConnectionParameters(port=node.port, blocked_connection_timeout=30) for node in nodes[:2]]
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    nodes[0].kill()
    with pytest.raises(pika.exceptions.AMQPError):
        channel.basic_publish("", QUEUE, b"lost")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", QUEUE, b"kept", pika.BasicProperties(delivery_mode=2))
        assert channel.basic_get(QUEUE, auto_ack=True)[2] in (b"kept", b"lost")


def test_a_robust_connection_of_aio_pika_goes_on_where_a_name_leads(nodes: list[JumpMQ]) -> None:
    """aio-pika takes one address, in a cluster a name or a proxy: here a port that leads to a running node."""

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for node in nodes[:2]:
            try:
                node_reader, node_writer = await asyncio.open_connection("127.0.0.1", node.port)
            except OSError:
                continue
            await asyncio.gather(pass_on(reader, node_writer), pass_on(node_reader, writer))
            return

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while octets := await reader.read(1 << 16):
                writer.write(octets)
        except OSError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(lead, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{port}/", reconnect_interval=0.5)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            queue = await channel.get_queue(QUEUE)
            arrived: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(message: AbstractIncomingMessage) -> None:
                await message.ack()
                arrived.put_nowait(message.body)

            await queue.consume(take)
            await asyncio.to_thread(nodes[0].kill)
            await asyncio.sleep(1)
            async with asyncio.timeout(60):
                await connection.ready()
                message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, QUEUE)
                assert await arrived.get() == b"kept"
        server.close()

    asyncio.run(main())
