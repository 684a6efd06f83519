"""Consumers that first declare a queue are spread over the shards of a sharded exchange."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from kombu import Connection, Consumer, Queue
from tests.clients.installed import bunny_is_installed

import jumpmq
from jumpmq.management import ManagementClient

SHARDS = 3
MODULES = [Path(prefix) / "lib/node_modules" for prefix in ("/usr", "/usr/local")]


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["alone", "two workers"])
def broker(request: pytest.FixtureRequest) -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running(workers=request.param, queue_leader_locator="balanced") as running:
        api = ManagementClient(running.http_url)
        policy = {"pattern": "^images", "definition": {"shards-per-node": SHARDS}, "apply-to": "exchanges"}
        api.put("policies", "/", "images", body=policy)
        yield running


def exchange(broker: jumpmq.RunningBroker, name: str) -> ManagementClient:
    api = ManagementClient(broker.http_url)
    api.put("exchanges", "/", name, body={"type": "x-modulus-hash", "durable": True})
    return api


def spread(api: ManagementClient, name: str) -> list[int]:
    """Number of consumers per shard."""
    queues = [one for one in api.get("queues", "/") if one["name"].startswith(f"sharding: {name} - ")]
    return sorted(one["consumers"] for one in queues)


def test_pika_declares_passively(broker: jumpmq.RunningBroker) -> None:
    api = exchange(broker, "images-pika")
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        for number in range(SHARDS):
            declared = channel.queue_declare("images-pika", passive=True).method
            assert (declared.queue, declared.consumer_count) == ("images-pika", number)
            channel.basic_consume(declared.queue, lambda *_: None)
        assert spread(api, "images-pika") == [1] * SHARDS


def test_aio_pika_gets_the_queue(broker: jumpmq.RunningBroker) -> None:
    api = exchange(broker, "images-aio")

    async def ignore(message: AbstractIncomingMessage) -> None:
        pass

    async def consume() -> list[int]:
        connection = await aio_pika.connect(broker.amqp_url)
        async with connection:
            channel = await connection.channel()
            for _ in range(SHARDS):
                queue = await channel.get_queue("images-aio")
                await queue.consume(ignore)
            return await asyncio.to_thread(spread, api, "images-aio")

    assert asyncio.run(consume()) == [1] * SHARDS


def test_kombu_declares(broker: jumpmq.RunningBroker) -> None:
    api = exchange(broker, "images-kombu")
    with Connection(broker.amqp_url) as connection:
        queue = Queue("images-kombu", durable=True)
        consumers = [Consumer(connection.channel(), [queue], callbacks=[print]) for _ in range(SHARDS)]
        for consumer in consumers:
            consumer.consume()
        assert spread(api, "images-kombu") == [1] * SHARDS


PROGRAMS = {
    "bunny": (
        ["ruby", "-rbunny", "-e"],
        "$stdout.sync = true; channel = Bunny.new(ARGV[0]).start.create_channel; 3.times { "
        "queue = channel.queue(ARGV[1], passive: true); queue.subscribe {} }; puts :ready; STDIN.read",
        bunny_is_installed,
    ),
    "amqplib": (
        ["node", "-e"],
        "const [url, name] = process.argv.slice(1); require('amqplib').connect(url).then(c => c.createChannel())"
        ".then(async channel => { for (let i = 0; i < 3; i++) { await channel.checkQueue(name);"
        " await channel.assertQueue(name, {durable: true}); await channel.consume(name, () => {}); }"
        " console.log('ready'); process.stdin.resume(); })",
        lambda: shutil.which("node") is not None and any((one / "amqplib").is_dir() for one in MODULES),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("client", PROGRAMS)
def test_clients_of_other_languages_declare(broker: jumpmq.RunningBroker, client: str) -> None:
    command, program, is_installed = PROGRAMS[client]
    if not is_installed():
        pytest.skip(f"{client} is not installed")
    api, name = exchange(broker, f"images-{client}"), f"images-{client}"
    environment = os.environ | {"NODE_PATH": os.pathsep.join(map(str, MODULES))}
    with subprocess.Popen(
        [*command, program, broker.amqp_url, name], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            assert spread(api, name) == [1] * SHARDS
        finally:
            process.kill()
