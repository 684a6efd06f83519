"""After a reduction of the number of workers, queues of removed workers are at the remaining workers."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.cli.commands import run

import jumpmq
from jumpmq.broker.config import homes_in
from jumpmq.testing import JumpMQ, children

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "stream": {"x-queue-type": "stream"},
    "other": {},
    "another": {"x-max-priority": 3},
    "last": {"x-queue-type": "stream"},
}
COUNT = 30


def until(true: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def filled(broker: jumpmq.RunningBroker) -> None:
    """Queues of every kind at every home, with messages."""
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, arguments in QUEUES.items():
            channel.queue_declare(name, durable=True, auto_delete=name == "other", arguments=arguments)
            for number in range(COUNT):
                channel.basic_publish("", name, b"%d" % number, PERSISTENT)
    assert all(one["queues"] for one in workers(broker))


def workers(broker: jumpmq.RunningBroker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = requests.get(f"{broker.http_url}/api/workers", timeout=30).json()
    return found


def passes(broker: jumpmq.RunningBroker, check: str) -> bool:
    return requests.get(f"{broker.http_url}/api/health/checks/{check}", timeout=30).status_code == 200


def contents(broker: jumpmq.RunningBroker) -> dict[str, list[int]]:
    """Return the numbers of all messages by queue; messages of queues other than streams are acknowledged."""
    found: dict[str, list[int]] = {name: [] for name in QUEUES}
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        for name in QUEUES:
            arguments = {"x-stream-offset": "first"} if "stream" in QUEUES[name].values() else None
            for method, _, body in channel.consume(name, arguments=arguments, inactivity_timeout=10):
                assert method is not None
                found[name].append(int(body))
                channel.basic_ack(method.delivery_tag)
                if len(found[name]) == COUNT:
                    break
            channel.cancel()
    return found


def test_a_start_with_fewer_serves_the_others_until_they_are_empty(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data_dir": tmp_path, "queue_leader_locator": "balanced"}
    with jumpmq.running(workers=3, **settings) as broker:
        filled(broker)
    with jumpmq.running(workers=2, **settings) as broker:
        until(lambda: homes_in(tmp_path) == 2)
        assert [one["home"] for one in workers(broker)] == [1, 2]
        until(lambda: all(passes(broker, check) for check in ("alarms", "local-alarms")))
    with jumpmq.running(workers=1, **settings) as broker:
        until(lambda: homes_in(tmp_path) == 1)
    assert not (tmp_path / "homes").exists()
    with jumpmq.running(workers=1, **settings) as broker:
        assert requests.get(f"{broker.http_url}/api/losses", timeout=30).json() == []
        assert contents(broker) == {name: list(range(COUNT)) for name in QUEUES}
        again = run("jumpmqctl", "set_workers", "1", "--url", broker.http_url)  # say, after an interruption
        assert (again.returncode, "The broker has 1 workers" in again.stdout) == (0, True)
    with jumpmq.running(workers=2, **settings) as broker:  # and more again
        run("jumpmqctl", "rebalance", "all", "--url", broker.http_url)
        until(lambda: all(one["queues"] for one in workers(broker)))


def test_workers_are_left_while_clients_publish_and_processes_die(tmp_path: Path) -> None:
    others = children(os.getpid())
    with jumpmq.running(workers=3, data_dir=tmp_path, queue_leader_locator="balanced") as broker:
        processes = [pid for pid in children(os.getpid()) if pid not in others]
        filled(broker)
        result = run("jumpmqctl", "set_workers", "4", "--url", broker.http_url)
        assert (result.returncode, "the broker has 3 workers" in result.stderr) == (69, True)
        requests.put(f"{broker.http_url}/api/workers", json={"count": 1}, timeout=30).raise_for_status()
        for pid in processes[1:]:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        until(lambda: homes_in(tmp_path) == 1)
        result = run("jumpmqctl", "set_workers", "1", "--url", broker.http_url)
        assert (result.returncode, "The broker has 1 workers" in result.stdout) == (0, True)
        assert contents(broker) == {name: list(range(COUNT)) for name in QUEUES}


def test_a_kill_before_the_directory_of_a_left_home_is_gone_does_no_harm(tmp_path: Path) -> None:
    options = "--queue-leader-locator", "balanced"
    with JumpMQ(tmp_path, arguments=("--workers", "3", *options)) as broker:
        with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
            for number in range(60):
                connection.channel().queue_declare(f"q{number}", durable=True)
        requests.put(f"{api_of(broker)}/workers", json={"count": 2}, timeout=30).raise_for_status()
        while not requests.get(f"{api_of(broker)}/workers", timeout=30).json()[-1]["leaves"]:
            pass
        os.kill(broker.pid, signal.SIGSTOP)  # the supervisor, which would remove the directory
        until(lambda: len(requests.get(f"{api_of(broker)}/workers", timeout=30).json()) == 2)
        broker.kill()
        assert homes_in(tmp_path) == 3
        broker._arguments = ("--workers", "2", *options)
        for _ in range(2):
            broker.start()
            until(lambda: homes_in(tmp_path) == 2)
            assert len(requests.get(f"{api_of(broker)}/queues", timeout=30).json()) == 60
            broker.kill()


def api_of(broker: JumpMQ) -> str:
    return f"http://guest:guest@127.0.0.1:{broker.http_port}/api"
