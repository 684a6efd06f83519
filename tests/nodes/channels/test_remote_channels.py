"""Consuming from queues of remote homes, and further methods of channels on remote queues."""

import asyncio
import contextlib
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pika.exceptions
import pytest
from tests.brokers import copied, declare, queue_of, with_channel
from tests.nodes.channels.filling import filled
from tests.nodes.homes import homes, in_loop, stopped, until

from jumpmq.broker.connection import writing
from jumpmq.broker.connection.writing import WRITE_AT
from jumpmq.nodes.channels.served_channels import ServedChannels


@in_loop
async def test_get_ack_and_requeue(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await filled(brokers[1], "q", 3)

        def work(channel: Any) -> list[Any]:
            found = [channel.basic_get("q") for _ in range(4)]
            channel.basic_ack(found[0][0].delivery_tag)
            channel.basic_nack(found[1][0].delivery_tag, requeue=False)
            channel.basic_reject(found[2][0].delivery_tag, requeue=True)
            return [*found, channel.basic_get("q", auto_ack=True), channel.basic_get("q")]

        found = await with_channel(brokers[0], work)
        assert [body for _, _, body in found] == [b"0", b"1", b"2", None, b"2", None]
        assert [one.message_count for one, _, _ in found[:3]] == [2, 1, 0]
        assert [one.delivery_tag for one, _, _ in found[:3]] == [1, 2, 3]
        assert found[0][1].content_type == "text/plain"
        assert not found[2][0].redelivered
        assert found[4][0].redelivered
        assert queue_of(brokers[1], "q").message_count == 0


@in_loop
async def test_what_is_rejected_rests_at_its_home_and_what_is_put_back_does_not(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        retries = {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 3_600_000}
        await filled(brokers[1], "q", 2, **retries)

        def work(channel: Any) -> list[bytes]:
            for settle in (channel.basic_reject, channel.basic_nack):
                settle(channel.basic_get("q")[0].delivery_tag, requeue=True)
            got = [channel.basic_get("q", auto_ack=True) for _ in range(2)]
            return [body for _, _, body in got]

        assert await with_channel(brokers[0], work) == [b"1", None]
        resting = queue_of(brokers[1], "q").retries
        assert resting is not None and len(resting.resting.held) == 1


@in_loop
async def test_consumers_of_queues_of_all_homes_on_one_channel(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        for place, broker in enumerate(brokers):
            await filled(broker, f"q{place}", 200)

        def work(channel: Any) -> dict[str, list[bytes]]:
            channel.basic_qos(prefetch_count=7)
            found: dict[str, list[bytes]] = {f"q{place}": [] for place in range(3)}
            tags = []

            def on_message(_: Any, delivered: Any, properties: Any, body: bytes) -> None:
                found[delivered.routing_key].append(body)
                tags.append(delivered.delivery_tag)
                channel.basic_ack(delivered.delivery_tag)
                if sum(map(len, found.values())) == 600:
                    channel.stop_consuming()

            for name in found:
                channel.basic_consume(name, on_message)
            channel.start_consuming()
            assert tags == list(range(1, 601))
            return found

        found = await with_channel(brokers[1], work)
        assert all(bodies == [b"%d" % number for number in range(200)] for bodies in found.values())
        queues = [queue_of(broker, f"q{place}") for place, broker in enumerate(brokers)]
        await until(lambda: all(queue.message_count == 0 and not queue.consumers for queue in queues))


@in_loop
async def test_prefetch_holds_and_what_a_closed_channel_held_goes_back(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await filled(brokers[1], "q", 10)

        def work(channel: Any) -> list[int]:
            channel.basic_qos(prefetch_count=4)
            tags: list[int] = []
            channel.basic_consume("q", lambda c, delivered, p, b: tags.append(delivered.delivery_tag))
            channel.connection.process_data_events(0.2)
            assert channel.queue_declare("q", passive=True).method.message_count == 6
            channel.basic_ack(2, multiple=True)
            channel.connection.process_data_events(0.2)
            return tags

        assert await with_channel(brokers[0], work) == [1, 2, 3, 4, 5, 6]
        queue = queue_of(brokers[1], "q")
        await until(lambda: queue.ready_count == 8)
        assert [message.body for message in queue.peek(1, 100)] == [b"%d" % number for number in range(2, 10)]


@in_loop
async def test_counts_purge_and_delete_are_the_home_s(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await filled(brokers[1], "q", 5)

        def work(channel: Any) -> None:
            assert channel.queue_declare("q", passive=True).method.message_count == 5
            assert channel.queue_declare("q", durable=True).method.message_count == 5
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.queue_delete("q", if_empty=True)
            assert refused.value.args == (406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty")
            channel = channel.connection.channel()
            assert channel.queue_purge("q").method.message_count == 5
            channel.basic_publish("", "q", b"one more")
            assert channel.queue_delete("q").method.message_count == 1
            assert channel.queue_delete("q").method.message_count == 0

        await with_channel(brokers[0], work)
        assert all("q" not in broker.topology.vhosts["/"].declared for broker in brokers)


@in_loop
async def test_exclusive_consumers_and_cancellation(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "q")

        def work(channel: Any) -> list[str]:
            cancelled: list[str] = []
            channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
            tag = channel.basic_consume("q", lambda *message: None, exclusive=True)
            other = channel.connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="in exclusive use"):
                other.basic_consume("q", lambda *message: None)
            channel.basic_cancel(tag)
            tag = channel.basic_consume("q", lambda *message: None, consumer_tag="again")
            other = channel.connection.channel()
            other.queue_delete("q")
            channel.connection.process_data_events(0.2)
            return cancelled

        assert await with_channel(brokers[0], work) == ["again"]


@in_loop
async def test_transactions_settle_at_the_commit(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await filled(brokers[1], "q", 2)

        def work(channel: Any) -> None:
            channel.tx_select()
            for _ in range(2):
                channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
            channel.basic_publish("", "q", b"answer")
            assert queue_of(brokers[1], "q").unacknowledged_count == 2
            channel.tx_commit()
            assert channel.basic_get("q", auto_ack=True)[2] == b"answer"

        await with_channel(brokers[0], work)
        await until(lambda: queue_of(brokers[1], "q").message_count == 0)


@in_loop
async def test_large_bodies_and_a_slow_client(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "q")
        body = bytes(range(256)) * 2000

        def work(channel: Any) -> list[bytes]:
            for _ in range(20):
                channel.basic_publish("", "q", body)
            found: list[bytes] = []
            for _, _, body_found in channel.consume("q", auto_ack=True):
                found.append(body_found)
                if len(found) == 20:
                    break
            channel.cancel()
            return found

        assert await with_channel(brokers[0], work) == [body] * 20


@pytest.mark.parametrize("taken", [1 << 30, 150_000, 0])
@in_loop
async def test_many_large_deliveries_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """Many large deliveries are written from the receive buffer, as far as the socket takes the octets."""
    written = []

    def write(descriptor: int, octets: bytes | memoryview) -> int:
        if not taken:
            raise BlockingIOError
        count = os.write(descriptor, octets[:taken])
        written.append(count)
        return count

    monkeypatch.setattr(writing, "os", SimpleNamespace(write=write))
    bodies = [bytes([number]) * 100_000 for number in range(40)]
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "q")

        def work(channel: Any) -> list[tuple[int, bytes]]:
            for body in bodies:
                channel.basic_publish("", "q", body)
            found = []
            for method, _, body_found in channel.consume("q"):
                found.append((method.delivery_tag, body_found))
                channel.basic_ack(method.delivery_tag)
                if len(found) == len(bodies):
                    break
            channel.cancel()
            return found

        assert await with_channel(brokers[0], work) == list(enumerate(bodies, 1))
    assert max(written, default=0) >= min(taken, WRITE_AT)


@in_loop
async def test_a_home_that_goes_down(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await filled(brokers[1], "q", 2)
        await filled(brokers[0], "here", 1)

        consuming = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(channel: Any) -> None:
            cancelled: list[str] = []
            channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
            tags: list[int] = []
            channel.basic_consume("q", lambda c, d, p, b: tags.append(d.delivery_tag), consumer_tag="away")
            channel.connection.process_data_events(0.2)
            assert tags == [1, 2]
            loop.call_soon_threadsafe(consuming.set)
            while not cancelled:
                channel.connection.process_data_events(0.05)
            assert cancelled == ["away"]
            channel.basic_ack(1)
            assert channel.basic_get("here", auto_ack=True)[2] == b"0"
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.basic_get("q")
            node = brokers[0].node
            text = f"NOT_FOUND - home node '{node}' of durable queue 'q' in vhost '/' is down or inaccessible"
            assert refused.value.args == (404, text)

        async def stop() -> None:
            await consuming.wait()
            await stopped(brokers[1])

        await asyncio.gather(with_channel(brokers[0], work), stop())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["consumer", "queue"])
@in_loop
async def test_consumers_and_queues_of_other_homes_have_timeouts_of_their_own(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with homes(2, tmp_path, consumer_timeout=2) as brokers:

        def hold(channel: Any, queue: str, timeout: int, seconds: float) -> bool:
            """Acknowledge nothing for so long; return True if the channel is open afterwards."""
            arguments = {"x-consumer-timeout": timeout} if where == "consumer" else {}
            channel.basic_consume(queue, lambda *delivery: None, arguments=arguments)
            until = time.monotonic() + seconds
            while time.monotonic() < until and channel.is_open:
                channel.connection.process_data_events(0.1)
            return bool(channel.is_open)

        for queue, timeout in (("hasty", 900), ("patient", 60_000)):
            await filled(brokers[1], queue, 1, **({"x-consumer-timeout": timeout} if where == "queue" else {}))
        assert not await with_channel(brokers[0], lambda channel: hold(channel, "hasty", 900, 20))
        assert "Timeout value used: 900 ms" in caplog.text
        assert await with_channel(brokers[0], lambda channel: hold(channel, "patient", 60_000, 4.5))


@in_loop
async def test_what_a_home_delivers_as_soon_as_it_has_started_is_marked_if_it_is_killed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries of a home killed right after its start are marked, though its last end was clean."""
    async with homes(2, tmp_path / "running") as (_, second):
        await declare(second, "q")
        persistent = pika.BasicProperties(delivery_mode=2)
        await with_channel(second, lambda channel: channel.basic_publish("", "q", b"0", persistent))
        await until(lambda: queue_of(second, "q").ready_count)
    copies: list[Path] = []
    serve = ServedChannels.serve

    def served(self: ServedChannels, *arguments: Any) -> None:
        copies.append(tmp_path / str(len(copies)))
        copied(tmp_path / "running", copies[-1])
        serve(self, *arguments)

    monkeypatch.setattr(ServedChannels, "serve", served)
    async with homes(2, tmp_path / "running"):
        monkeypatch.undo()
    async with homes(2, copies[1]) as (first, _):  # the disks at the moment when the second home begins to serve

        def get(channel: Any) -> tuple[bytes, bool]:
            method, _, body = channel.basic_get("q")
            return body, method.redelivered

        assert await with_channel(first, get) == (b"0", True)


@in_loop
async def test_a_client_that_comes_while_a_home_stops_is_not_served(tmp_path: Path) -> None:
    """A client that connects while a home stops is not served: the record of a clean stop would not cover it."""
    async with homes(2, tmp_path) as (first, _):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        closing, answers = first._commits.close, []

        async def close(*, clean: bool = True) -> None:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(first.listening.accept, theirs)
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(ours, b"AMQP\0\0\x09\x01")
                answers.append(await asyncio.wait_for(loop.sock_recv(ours, 100), 5))
            await closing(clean=clean)

        first._commits.close = close  # type: ignore[method-assign]
        await stopped(first)
        assert not any(answers)
        ours.close()
