"""Consumers of a temporarily unreadable stream wait, and the reason is reported."""

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
from tests.brokers import config_of, in_loop, started, stopped, until, with_channel

import jumpmq
from jumpmq.broker.errors import BrokerError
from jumpmq.store.file_octets import FileOctets

COUNT = 200
ARGUMENTS = {"x-queue-type": "stream"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(channel: Any) -> None:
    """Fill a stream ``s`` with numbered messages, in chunks of a few."""
    channel.queue_declare("s", durable=True, arguments=ARGUMENTS)
    channel.confirm_delivery()
    for number in range(COUNT):
        channel.basic_publish("", "s", b"%d" % number, PERSISTENT)


class Disk:
    """A disk that fails reads of streams while told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self._read = FileOctets.read
        monkeypatch.setattr(FileOctets, "read", lambda *asked: self._reads(*asked))

    def _reads(self, file: FileOctets, position: int, length: int) -> bytes:
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        return self._read(file, position, length)


@in_loop
async def test_consumers_wait_for_the_disk_and_miss_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk, found, stop = Disk(monkeypatch), list[int](), threading.Event()

    def consume(channel: Any) -> None:
        channel.basic_qos(prefetch_count=10)

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            found.append(int(body))
            if len(found) == 50:
                disk.fails = True
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("s", take, arguments={"x-stream-offset": "first"})
        while not stop.is_set():
            channel.connection.process_data_events(0.05)

    broker = await started(config_of(1, 1, tmp_path))
    await with_channel(broker, publish)
    consuming = asyncio.ensure_future(with_channel(broker, consume))
    await until(lambda: "cannot be read: Input/output error" in caplog.text)
    assert broker.losses
    await asyncio.sleep(0.3)
    assert found == list(range(len(found))) and len(found) < COUNT
    disk.fails = False
    await until(lambda: len(found) == COUNT)
    assert found == list(range(COUNT))
    stop.set()
    await consuming


def test_who_asks_for_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    with (
        jumpmq.running(data_dir=tmp_path) as broker,
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection,
    ):
        publish(connection.channel())
        disk.fails = True
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        refusal = "stream 's' in vhost '/' cannot be read: Input/output error"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=refusal) as raised:
            channel.basic_consume("s", print, arguments={"x-stream-offset": "1h"})
        assert raised.value.reply_code == 406
        url = f"{broker.http_url}/api/queues/%2F/s/messages"
        answer = requests.get(url, auth=("guest", "guest"), timeout=10)
        assert (answer.status_code, answer.json()) == (503, {"error": "resource_error", "reason": refusal})
        disk.fails = False
        assert requests.get(url, auth=("guest", "guest"), timeout=10).status_code == 200


@in_loop
async def test_a_start_that_cannot_read_the_end_of_a_stream_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that cannot read the end of a stream reports the stream, and does not cut it as after a crash."""
    disk = Disk(monkeypatch)
    broker = await started(config_of(1, 1, tmp_path))
    await with_channel(broker, publish)
    await stopped(broker)
    disk.fails = True
    with pytest.raises(BrokerError, match=r"\.segment cannot be read: Input/output error; the file is kept unchanged"):
        await started(config_of(1, 1, tmp_path))
    disk.fails = False
    broker = await started(config_of(1, 1, tmp_path))
    stream = broker.topology.vhosts["/"].queues["s"]
    assert [int(one.body) for one in stream.peek(0, stream.next_seq)] == list(range(COUNT))
