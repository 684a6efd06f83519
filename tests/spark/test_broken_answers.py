"""An answer of the broker that breaks off is requested again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import publish
from tests.spark.processes import processes
from tests.spark.proxy import Proxy

import jumpmq
from jumpmq import RunningBroker
from jumpmq.spark.client import Client
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import BrokerAddress

COUNT = 3000
BODY = b"x" * 4096
TAKEN = 500


def read(broker: jumpmq.RunningBroker, meanwhile: Callable[[], None]) -> Counter[int]:
    """Count the messages read from the queue ``q1``, through an answer cut after two thirds."""
    proxy = Proxy(broker.http_port, COUNT * len(BODY) * 2 // 3, meanwhile)
    try:
        client = Client(BrokerAddress(f"http://guest:guest@127.0.0.1:{proxy.port}"), met=True)
        batches = client.ready([["q1", 1, COUNT]], ["body"])
        found = Counter(number for batch in batches for number in batch.column("seq").to_pylist())
    finally:
        proxy.close()
    assert proxy.cuts == 1
    return found


def take_some(channel: BlockingChannel) -> None:
    """Take messages without acknowledgement."""
    for method, _, _ in channel.consume("q1"):
        if method.delivery_tag == TAKEN:
            return


@pytest.fixture
def filled(broker: jumpmq.RunningBroker, channel: BlockingChannel) -> Any:
    rows = ipc_stream(pa.table({"body": [BODY] * COUNT}))
    assert Client(BrokerAddress(broker.http_url)).publish(rows, {"queue": "q1"})["published"] == COUNT
    channel.basic_qos(prefetch_count=TAKEN)
    return channel


def test_messages_that_are_consumed_meanwhile_do_not_displace_others(broker: RunningBroker, filled: Any) -> None:
    def take() -> None:
        take_some(filled)
        filled.basic_ack(0, multiple=True)

    found = read(broker, take)
    assert set(found) >= set(range(TAKEN + 1, COUNT + 1))
    assert set(found.values()) == {1}


def test_messages_that_come_back_meanwhile_do_not_double_others(broker: RunningBroker, filled: Any) -> None:
    take_some(filled)
    found = read(broker, lambda: filled.basic_nack(0, multiple=True))
    assert set(found) >= set(range(TAKEN + 1, COUNT + 1))
    assert set(found.values()) == {1}


@pytest.mark.slow
def test_a_process_of_the_broker_that_is_down_is_waited_for(tmp_path: Path) -> None:
    names = ["q1", "q2"]
    with jumpmq.running(data_dir=tmp_path, workers=2) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            for name in names:
                channel.queue_declare(name, durable=True, arguments={"x-queue-leader-locator": "balanced"})
                publish(channel, name, [b"a", b"b"])
        client = Client(BrokerAddress(broker.http_url), met=True)
        workers = sorted(
            pid
            for pid, parent, command in processes()
            if parent == os.getpid() and b"jumpmq.nodes.processes.worker" in command
        )
        os.kill(workers[-1], signal.SIGKILL)
        slices = [[name, 1, found["last_seq"]] for name, found in client.ranges(None, names).items()]
        rows = [row for batch in client.ready(slices, ["body"]) for row in batch.to_pylist()]
    assert Counter(row["queue"] for row in rows) == {"q1": 2, "q2": 2}
