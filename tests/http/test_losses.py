"""Losses in the data directory alarm operators until acknowledged, across restarts."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.http.api import API, publish
from tests.waiting import until

import jumpmq


def metric(running: jumpmq.RunningBroker) -> float:
    text = requests.get(f"{running.http_url}/metrics", timeout=10).text
    (line,) = [line for line in text.splitlines() if line.startswith("jumpmq_losses ")]
    return float(line.split()[1])


@contextlib.contextmanager
def connected(running: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A channel of a client."""
    with pika.BlockingConnection(pika.URLParameters(running.amqp_url)) as connection:
        yield connection.channel()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory of a queue with 100 messages and a stream with 10, without their files."""
    with jumpmq.running(data_dir=tmp_path) as running, connected(running) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"%d" % number for number in range(100)])
        channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
        publish(channel, "events", [b"%d" % number for number in range(10)])
    for path in tmp_path.glob("log/*.log"):
        path.unlink()
    shutil.rmtree(tmp_path / "streams")
    return tmp_path


def test_a_loss_alarms_until_it_is_acknowledged(directory: Path) -> None:
    checks = ("alarms", "local-alarms")
    for _ in range(2):
        with jumpmq.running(data_dir=directory) as running:
            api = API(running.http_url)
            loss, other = api.get("losses")
            assert "messages 1 to 100 of queue 'orders' in vhost '/' are missing" in loss["loss"]
            assert "offsets 0 to 9 are lost of queue 'events' in vhost '/'" in other["loss"]
            for check in checks:
                answer = api.request("GET", "health", "checks", check)
                assert answer.status_code == 503 and "1 to 100 of queue 'orders'" in answer.text
            assert "1 to 100 of queue 'orders'" in api.request("GET", "healthchecks", "node").text
            assert metric(running) == 2
            assert [one["kind"] for one in api.get("warnings")] == ["losses"]
            assert api.counts("orders") == (0, 0)
            shown = run("jumpmqctl", "--url", running.http_url, "list_losses").stdout
            assert "1 to 100 of queue 'orders'" in shown
    with jumpmq.running(data_dir=directory) as running:
        assert run("jumpmqctl", "--url", running.http_url, "acknowledge_losses").returncode == 0
    with jumpmq.running(data_dir=directory) as running:
        api = API(running.http_url)
        assert api.get("losses") == []
        assert [api.request("GET", "health", "checks", check).status_code for check in checks] == [200, 200]
        assert metric(running) == 0


def test_what_is_found_damaged_when_it_is_read_alarms_too(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as running, connected(running) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"body %d" % number for number in range(10)])
    (path,) = tmp_path.glob("log/*.log")
    octets = bytearray(path.read_bytes())
    octets[octets.index(b"body 5")] ^= 1
    path.write_bytes(octets)
    with jumpmq.running(data_dir=tmp_path) as running:
        with connected(running) as channel:
            bodies = [channel.basic_get("orders", auto_ack=True)[2] for _ in range(9)]
            assert bodies == [b"body %d" % number for number in range(10) if number != 5]
        (loss,) = until(lambda: API(running.http_url).get("losses"))
        assert str(path) in loss["loss"] and "queue 'orders'" in loss["loss"]
    with jumpmq.running(data_dir=tmp_path) as running:
        assert API(running.http_url).get("losses") == [loss]
