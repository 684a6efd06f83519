"""A broker in several processes is one broker, also after the death of any process."""

import asyncio
import fcntl
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.nodes.homes import in_loop

import jumpmq
from jumpmq import Config
from jumpmq.broker import BrokerError
from jumpmq.nodes.processes import workers
from jumpmq.nodes.processes.workers import serving_workers

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def settings(directory: Path | None = None, **others: Any) -> Config:
    return Config(port=0, http_port=0, tls_port=None, https_port=None, data_dir=directory, **others)


def publish_when_up(channel: Any, queue: str) -> None:
    """Publish a message; repeat until the local home knows of the restart of the queue's home."""
    until = time.monotonic() + 10
    while True:
        try:
            channel.basic_publish("", queue, b"after", PERSISTENT, mandatory=True)
            return
        except pika.exceptions.NackError:
            assert time.monotonic() < until
            time.sleep(0.05)


@contextmanager
def connected(url: str, count: int = 1) -> Iterator[list[Any]]:
    """So many connections' channels, with confirms."""
    connections = [pika.BlockingConnection(pika.URLParameters(url)) for _ in range(count)]
    channels = [connection.channel() for connection in connections]
    for channel in channels:
        channel.confirm_delivery()
    yield channels
    for connection in connections:
        connection.close()


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)


def test_two_processes_are_one_broker() -> None:
    with jumpmq.running(workers=2, tls=True) as broker, connected(broker.amqp_url, 2) as channels:
        for number, channel in enumerate(channels):
            channel.queue_declare(f"q{number}")
        for channel in channels:
            for number in range(2):
                channel.basic_publish("", f"q{number}", b"hello", mandatory=True)
        for number, channel in enumerate(channels):
            assert [channel.basic_get(f"q{number}", auto_ack=True)[2] for _ in range(2)] == [b"hello"] * 2
        context = ssl.create_default_context(cafile=str(broker.tls_ca))
        options = pika.SSLOptions(context, "localhost")
        encrypted = pika.ConnectionParameters("localhost", broker.tls_port, ssl_options=options)
        connection = pika.BlockingConnection(encrypted)
        connection.channel().basic_publish("", "q1", b"encrypted")
        connection.close()


def test_a_data_directory_of_one_process_becomes_the_first_of_several(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker, connected(broker.amqp_url) as [channel]:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"kept", PERSISTENT)
    with jumpmq.running(data_dir=tmp_path, workers=2) as broker, connected(broker.amqp_url, 2) as channels:
        for channel in channels:
            channel.basic_publish("", "q", b"more", PERSISTENT, mandatory=True)
    assert (tmp_path / "homes" / "2").is_dir()
    with jumpmq.running(data_dir=tmp_path) as broker, connected(broker.amqp_url) as [channel]:
        assert channel.queue_declare("q", passive=True).method.message_count == 3


@pytest.mark.slow
def test_the_number_of_processes_may_grow(tmp_path: Path) -> None:
    """With more processes, existing queues stay in place, and new queues go to all processes."""
    balanced = {"x-queue-leader-locator": "balanced"}
    for processes in (1, 2, 4):
        with jumpmq.running(data_dir=tmp_path, workers=processes) as broker, connected(broker.amqp_url) as [channel]:
            channel.exchange_declare("x", "x-consistent-hash", durable=True)
            for number in range(8):
                name = f"{processes}-{number}"
                channel.queue_declare(name, durable=True, arguments=balanced)
                channel.queue_bind(name, "x", "1")
                channel.basic_publish("", name, b"kept", PERSISTENT, mandatory=True)
            for number in range(200):
                channel.basic_publish("x", str(number), b"spread", PERSISTENT, mandatory=True)
    with jumpmq.running(data_dir=tmp_path, workers=5) as broker:
        shown = requests.get(f"{broker.http_url}/api/queues", timeout=30).json()
        assert len(shown) == 24
        assert sum(one["messages"] for one in shown) == 24 + 3 * 200


@in_loop
async def test_a_process_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with serving_workers(settings(tmp_path), 2) as control:
        url, homes = control.endpoints.amqp_url, control.workers

        def declare_and_publish(round: int) -> None:
            with connected(url, 2) as channels:
                for place, channel in enumerate(channels):
                    channel.queue_declare(f"{round}-{place}", durable=True)
                    channel.basic_publish("", f"{round}-{place}", b"kept", PERSISTENT, mandatory=True)
                for channel in channels:
                    for place in range(2):
                        channel.basic_publish("", f"{round}-{place}", b"also", PERSISTENT, mandatory=True)

        def publish_to_all(rounds: int) -> None:
            """Publish to every queue from a client of each process: all definitions are known everywhere."""
            with connected(url, 2) as channels:
                for channel in channels:
                    for queue in (f"{round}-{place}" for round in range(rounds) for place in range(2)):
                        publish_when_up(channel, queue)

        def are_ready_without(pid: int) -> bool:
            return homes.all_ready and pid not in homes.pids

        for round in range(2):
            await asyncio.to_thread(declare_and_publish, round)
            before = homes.pids[round]
            os.kill(before, signal.SIGKILL)
            await until(partial(are_ready_without, before))
            await asyncio.to_thread(publish_to_all, round + 1)


@pytest.mark.parametrize("place", [0, 1])
@in_loop
async def test_a_process_that_dies_while_the_broker_starts_is_started_again(tmp_path: Path, place: int) -> None:
    supervisor = workers.Workers(settings(tmp_path), 2, lambda: None, lambda reason: None)
    starting = asyncio.create_task(supervisor.start())
    try:
        await until(lambda: supervisor.pids[place])
        os.kill(supervisor.pids[place], signal.SIGKILL)
        async with asyncio.timeout(60):
            await starting
        assert supervisor.all_ready
    finally:
        await supervisor.stop()


@in_loop
async def test_a_process_that_never_starts_keeps_the_broker_from_starting() -> None:
    supervisor = workers.Workers(settings(), 2, lambda: None, lambda reason: None, 1, 1000.0)
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: supervisor.pids[1])
    os.kill(supervisor.pids[1], signal.SIGKILL)
    with pytest.raises(BrokerError, match="home 2 has ended 1 times soon after its start"):
        await starting
    await supervisor.stop()


@in_loop
async def test_a_process_that_ends_again_and_again_ends_the_broker() -> None:
    failed = asyncio.get_running_loop().create_future()
    async with serving_workers(settings(), 2, fail=failed.set_result, short_lives=1, short_life=1000.0) as control:
        os.kill(control.workers.pids[1], signal.SIGKILL)
        async with asyncio.timeout(60):
            assert "home 2" in await failed


def test_the_command_line_serves_with_several_processes(tmp_path: Path) -> None:
    """`jumpmq serve --workers 2` is ready once all workers are, ignores SIGHUP, and ends on SIGTERM or request.

    After SIGKILL, the next start waits for the processes of the killed broker.
    """
    command = [sys.executable, "-m", "jumpmq", "serve", "--workers", "2", "--port", "0", "--http-port", "0"]
    for how in ("http", "kill", "signal"):
        server = subprocess.Popen([*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        ready = server.stdout.readline()
        port, http_port = re.findall(r":([0-9]+)", ready)
        with socket.create_connection(("localhost", int(port))):
            server.send_signal(signal.SIGHUP)
            api = f"http://guest:guest@localhost:{http_port}/api"
            listeners = requests.get(f"{api}/overview", timeout=10).json()["listeners"]
            assert {(one["protocol"], one["port"]) for one in listeners} == {
                ("amqp", int(port)),
                ("http", int(http_port)),
            }
            if how == "http":
                assert requests.post(f"{api}/stop", timeout=10).ok
            else:
                if how == "kill":  # while a process of the broker takes long to end
                    threads = Path(f"/proc/{server.pid}/task").glob("*/children")
                    slow = max(int(pid) for children in threads for pid in children.read_text().split())
                    os.kill(slow, signal.SIGSTOP)
                    threading.Timer(3, os.kill, (slow, signal.SIGCONT)).start()
                server.send_signal(signal.SIGTERM if how == "signal" else signal.SIGKILL)
        assert server.wait(30) == (-signal.SIGKILL if how == "kill" else 0)
        server.stdout.close()


SUPERVISOR = """
import asyncio, sys
from jumpmq import Config
from jumpmq.nodes.processes.workers import serving_workers
async def main():
    config = Config(port=0, http_port=0, tls_port=None, https_port=None, log_level="error")
    async with serving_workers(config, 2) as control:
        print(control.workers.links, *control.workers.pids, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_processes_end_with_their_supervisor() -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    links, *pids = supervisor.stdout.readline().split()
    assert len(pids) == 2
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    asyncio.run(until(lambda: all(map(has_ended, pids)) and not Path(links).exists()))


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@in_loop
async def test_who_clears_up_old_files_leaves_the_directory_of_links(tmp_path: Path) -> None:
    """systemd-tmpfiles leaves the directory of links alone, which is locked (tmpfiles.d(5))."""
    async with serving_workers(settings(), 2) as control:
        directory = control.workers.links
        assert directory.stat().st_mode & 0o777 == 0o700
        descriptor = os.open(directory, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(descriptor)
    assert not directory.exists()
