"""Programs of pika, aio-pika, Bunny, amqplib and Celery that declare quorum queues, streams and priorities."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aio_pika
import pika
import pytest
from pamqp.common import FieldTable
from tests.clients.amqplib import AMQPLIB, global_modules

from jumpmq.testing import BrokerProcess

Name = Callable[[str], str]


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"


def test_a_quorum_queue_with_pika(url: str, unique: Name) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel, queue = connection.channel(), unique("orders")
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"order")
        channel.basic_qos(prefetch_count=10)
        seen = []
        for method, properties, _ in channel.consume(queue, inactivity_timeout=60):
            seen.append((properties.headers or {}).get("x-delivery-count"))
            if len(seen) < 3:
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)
                break
        assert seen == [None, 1, 2]
        channel.cancel()
        channel.queue_delete(queue)


def test_a_stream_with_pika(url: str, unique: Name) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel, queue = connection.channel(), unique("events")
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream", "x-max-age": "1D"})
        channel.confirm_delivery()
        for number in range(20):
            channel.basic_publish("", queue, b"%d" % number)
        channel.basic_qos(prefetch_count=5)
        seen = []
        arguments = {"x-stream-offset": 7}
        for method, properties, body in channel.consume(queue, arguments=arguments, inactivity_timeout=60):
            seen.append((properties.headers["x-stream-offset"], body))
            channel.basic_ack(method.delivery_tag)
            if len(seen) == 13:
                break
        assert seen == [(number, b"%d" % number) for number in range(7, 20)]
        channel.cancel()
        channel.queue_delete(queue)


async def declare_all_kinds(url: str, prefix: str) -> list[bytes]:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        bodies: list[bytes] = []
        kinds: list[FieldTable] = [{"x-queue-type": "quorum"}, {"x-max-priority": 5}, {"x-queue-type": "stream"}]
        for arguments in kinds:
            name = f"{prefix}-{len(bodies)}"
            queue = await channel.declare_queue(name, durable=True, arguments=arguments)
            for priority in (1, 3):
                message = aio_pika.Message(b"%d" % priority, priority=priority)
                await channel.default_exchange.publish(message, routing_key=name)
            offset: FieldTable | None = (
                {"x-stream-offset": "first"} if arguments.get("x-queue-type") == "stream" else None
            )
            got = []
            async with queue.iterator(arguments=offset) as messages:
                async for delivered in messages:
                    got.append(delivered.body)
                    await delivered.ack()
                    if len(got) == 2:
                        break
            bodies.append(b" ".join(got))
            await queue.delete(if_unused=False, if_empty=False)
        return bodies


def test_all_kinds_with_aio_pika(url: str, unique: Name) -> None:
    bodies = asyncio.run(declare_all_kinds(url, unique("kinds")))
    assert bodies == [b"1 3", b"3 1", b"1 3"]


BUNNY = """
require "bunny"
connection = Bunny.new(ARGV[0], automatically_recover: false, log_level: :fatal).start
name = ARGV[1]
kinds = [{ "x-queue-type" => "quorum" }, { "x-max-priority" => 5 }, { "x-queue-type" => "stream" }]
kinds.each_with_index do |arguments, i|
  channel = connection.create_channel
  channel.prefetch(10)
  channel.confirm_select
  queue = channel.queue("#{name}-#{i}", durable: true, arguments: arguments)
  [1, 3].each { |priority| queue.publish(priority.to_s, priority: priority) }
  channel.wait_for_confirms
  arrived = Thread::Queue.new
  offset = arguments["x-queue-type"] == "stream" ? { "x-stream-offset" => "first" } : {}
  queue.subscribe(manual_ack: true, arguments: offset) do |info, _, body|
    channel.ack(info.delivery_tag)
    arrived << body
  end
  puts [arrived.pop, arrived.pop].join(" ")
  queue.delete
  channel.close
end
connection.close
"""


@pytest.mark.parametrize(
    ("command", "probe", "program"),
    [
        (["ruby", "-e"], 'require "bunny"', BUNNY),
        (["node", "-e"], "require('amqplib')", AMQPLIB),
    ],
    ids=["bunny", "amqplib"],
)
def test_all_kinds_with(command: list[str], probe: str, program: str, url: str, unique: Name) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = os.environ | {"NODE_PATH": global_modules()}
    if subprocess.run([*command, probe], capture_output=True, env=environment).returncode:
        pytest.skip(f"{probe} fails: the client is not installed")
    done = subprocess.run(
        [*command, program, url, unique("kinds")],
        capture_output=True, text=True, timeout=200, check=False, env=environment,
    )  # fmt: skip
    assert (done.stdout.split("\n"), done.stderr) == (["1 3", "3 1", "1 3", ""], "")


TASKS = """
import sys
from celery import Celery

app = Celery("tasks", broker=sys.argv[-3])
app.conf.update(
    task_queue_max_priority=10, task_default_priority=5, task_default_queue=sys.argv[-2], worker_prefetch_multiplier=1,
    task_acks_late=True, worker_enable_remote_control=False, worker_send_task_events=False,
)


@app.task(name="note")
def note(text):
    with open(sys.argv[-1], "a") as file:
        file.write(text + " ")
    if text == "last":
        from os import _exit
        _exit(0)


if sys.argv[1] == "publish":
    for priority in (1, 9, 5, 3, 9, 7):
        note.apply_async((str(priority),), priority=priority)
    note.apply_async(("last",), priority=0)
else:
    options = "--pool=solo --without-gossip --without-mingle --without-heartbeat --loglevel=ERROR"
    app.worker_main(["worker", *options.split()])
"""


def test_celery_orders_its_tasks(url: str, unique: Name, tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="Celery is not installed (pip install celery)")
    program, noted = tmp_path / "tasks.py", tmp_path / "noted"
    program.write_text(TASKS)
    queue = unique("celery")
    for role in ("publish", "work"):
        command = [sys.executable, str(program), role, url.replace("%2F", "/"), queue, str(noted)]
        subprocess.run(command, cwd=tmp_path, timeout=200, check=True)
    assert noted.read_text().split() == ["9", "9", "7", "5", "3", "1", "last"]
