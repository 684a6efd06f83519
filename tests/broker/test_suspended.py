"""A machine resumes after an hour's suspension: the uptime clock has counted the hour, timers have not."""

import asyncio
from pathlib import Path

import pika
import pytest
from tests.brokers import config_of, declare, in_loop, queue_of, started, until, with_channel

from jumpmq.broker.connection.pause import STOPPED
from jumpmq.queues import clock

HOUR = 3600.0


def suspend(patched: pytest.MonkeyPatch) -> None:
    """The machine was suspended for an hour until now."""
    uptime = clock.boot_time
    patched.setattr(clock, "boot_time", lambda: uptime() + HOUR)


@in_loop
async def test_messages_expire_by_the_time_that_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages expire as soon as a suspended machine resumes, before the timer is due; an unused queue stays."""
    broker = await started(config_of(1, 1, tmp_path, durable=False))
    await declare(broker, "q", {"x-message-ttl": 1_800_000})
    await declare(broker, "unused", {"x-expires": 1_800_000})
    await with_channel(broker, lambda channel: channel.basic_publish("", "q", b"old"))
    suspend(monkeypatch)
    await until(lambda: queue_of(broker, "q").message_count == 0)
    await with_channel(broker, lambda channel: channel.basic_publish("", "q", b"new"))
    assert queue_of(broker, "q").message_count == 1
    assert "unused" in broker.topology.vhosts["/"].queues


@in_loop
async def test_a_client_s_first_words_after_it_wait_in_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster, a client's first methods after a suspension wait for the changes of peers."""
    broker = await started(config_of(1, 1, tmp_path, durable=False))
    stops: list[bool] = []
    broker.pause.listen(on_late=lambda: stops.append(broker.pause.active))
    await until(lambda: broker.pause.late_at < HOUR * 1_000_000)
    connection = await asyncio.to_thread(pika.BlockingConnection, pika.ConnectionParameters("127.0.0.1", broker.port))
    suspend(monkeypatch)
    await until(lambda: stops)
    assert broker.pause.active
    broker.pause.end(STOPPED)
    await asyncio.to_thread(connection.close)
