"""Delayed retries over AMQP: a key rests with its message, through kills, growth and handovers; other keys go on."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher
from tests.broker.consumer_groups.members import until as soon
from tests.cli.commands import run
from tests.http.api import API
from tests.several_processes import running
from tests.waiting import until

import jumpmq
from jumpmq.testing import JumpMQ

HOUR = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000}
ORDERED = {**HOUR, "x-ordered-retries": True}
SLOTS = {**HOUR, "x-slots": 4, "x-in-flight-per-slot": 1}
SHORT = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 20}


@contextlib.contextmanager
def channel_of(port: int) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def publish(channel: Any, *bodies: str) -> None:
    """Publish messages; the first letter is the key."""
    for body in bodies:
        channel.basic_publish("", "q", body.encode(), pika.BasicProperties(message_id=body[0], delivery_mode=2))


def got(channel: Any) -> list[str]:
    """Get and acknowledge all ready messages; return the bodies."""
    found = []
    while (one := channel.basic_get("q"))[0] is not None:
        found.append(one[2].decode())
        channel.basic_ack(one[0].delivery_tag)
    return found


@pytest.mark.parametrize("kind", ["classic", pytest.param("quorum", marks=pytest.mark.slow)])
def test_what_rests_is_kept_and_shown_and_goes_on_by_hand(tmp_path: Path, kind: str) -> None:
    arguments = {**SLOTS, "x-slot-key": "message-id", "x-queue-type": kind, "x-delivery-limit": 9}
    if kind == "classic":
        del arguments["x-delivery-limit"]
    with JumpMQ(data_dir=tmp_path) as broker:
        with channel_of(broker.port) as channel:
            channel.queue_declare("q", durable=True, arguments=arguments)
            publish(channel, "a1", "b1", "a2")
            method, _, body = channel.basic_get("q")
            channel.basic_reject(method.delivery_tag, requeue=True)
            first = body.decode()[0]
            mine, others = (["a1", "a2"], ["b1"]) if first == "a" else (["b1"], ["a1", "a2"])
            publish(channel, "c1")
        broker.kill()
        broker.start()
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        api = API(url)
        with channel_of(broker.port) as channel:
            assert sorted(got(channel)) == sorted([*others, "c1"])
            publish(channel, f"{first}9")
            assert got(channel) == []
            reason = api.get("queues", "/", "q", "explain", key=first)["reason"]
            assert reason.startswith("the key waits for a retry of message ")
            assert "wait for retries, the next of which is at 20" in api.get("queues", "/", "q", "explain")["reason"]
            number = 1 if first == "a" else 2
            said = api.get("queues", "/", "q", "explain", message=number)["reason"]
            assert said.startswith(f"message {number} waits for its retry at 20")
            last = api.get("queues", "/", "q")["last_seq"]
            behind = api.get("queues", "/", "q", "explain", message=last)["reason"]
            assert behind.startswith(
                f"message {last} waits for a retry of message {number}, which has the same key, at 20"
            )
            shown = until(lambda: (found := api.get("queues", "/", "q")).get("messages_resting") and found)
            assert (shown["messages_resting"], shown["keys_resting"]) == (len(mine) + 1, 1)
            retried = run("jumpmqctl", "retry_now", "q", JUMPMQ_URL=url)
            assert (retried.returncode, retried.stderr) == (0, "")
            found: list[str] = []
            while len(found) <= len(mine):
                found += until(lambda: got(channel))
            assert found == [*mine, f"{first}9"]


def test_arguments_and_policies_that_are_refused() -> None:
    with jumpmq.running() as broker:
        for arguments, reason in [
            ({"x-delayed-retry-type": "all"}, "x-delayed-retry-min is missing"),
            ({**HOUR, "x-delayed-retry-type": "some"}, "expected disabled, all, failed, returned"),
            ({**HOUR, "x-delayed-retry-min": 0}, "value_zero"),
            ({**HOUR, "x-delayed-retry-max": -1}, "value_negative"),
            ({**HOUR, "x-delayed-retry-multiplier": "2"}, "expected integer"),
            ({**HOUR, "x-ordered-retries": 1}, "unacceptable_type"),
            ({**HOUR, "x-queue-type": "stream"}, "invalid arg 'x-delayed-retry-"),
        ]:
            with channel_of(broker.port) as channel, pytest.raises(ChannelClosedByBroker) as refused:
                channel.queue_declare("q", durable=True, arguments=arguments)
            assert refused.value.reply_code == 406 and reason in refused.value.reply_text
        api = API(broker.http_url)
        for definition in ({"delayed-retry-type": "some"}, {"delayed-retry-min": 0}, {"ordered-retries": True}):
            answer = api.request("PUT", "policies", "/", "retries", json={"pattern": "", "definition": definition})
            assert answer.status_code == 400, definition


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_keys_of_a_group_are_in_order_while_messages_come_back_and_members_come_and_go(workers: int) -> None:
    checker = Checker()
    with jumpmq.running(workers=workers) as broker, channel_of(broker.port) as channel:
        channel.exchange_declare("orders", "x-consistent-hash", durable=True)
        for number in range(3):
            slots = {"x-slots": 4, "x-in-flight-per-slot": 1}
            channel.queue_declare(f"orders-{number}", durable=True, arguments={**SHORT, **slots})
            channel.queue_bind(f"orders-{number}", "orders", "1")
        publisher = Publisher(broker.port, "orders", checker)
        publisher.publish(30, 3)
        members = [
            Member(broker.port, "orders", "g", f"m{number}", checker, prefetch=5, arguments={"x-rebalance-delay": 50})
            for number in range(2)
        ]
        failed, published = 0, 20
        while failed < 60:
            for member in members:
                member.read(0.01)
                if member.held:
                    member.requeue()
                    failed += 1
                member.acknowledge()
            if failed >= published:
                published += 20
                publisher.publish(30, 1)
        channel.queue_declare("orders-3", durable=True, arguments={**SHORT, "x-slots": 4, "x-in-flight-per-slot": 1})
        channel.queue_bind("orders-3", "orders", "1")
        publisher.publish(30, 2)
        members.pop().close()
        soon(lambda: not checker.left, *members, settle=True)
        for member in members:
            member.close()
        publisher.close()
    checker.check()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [{"workers": 2}, {"nodes": 2}])
def test_what_rests_while_its_queue_moves_comes_when_it_is_due_and_in_order(processes: dict[str, int]) -> None:
    rest = 4.0
    arguments: dict[str, Any] = {
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": int(rest * 1000),
        "x-ordered-retries": True,
    }

    async def move(port: int, api: API) -> tuple[list[str], float]:
        async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}") as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", durable=True, arguments=arguments)
            for body in (b"1", b"2", b"3"):
                message = aio_pika.Message(body, delivery_mode=2)
                await channel.default_exchange.publish(message, "q")
            await (await queue.get()).reject(requeue=True)
            began = time.monotonic()
            home = api.get("queues", "/", "q")["node"]
            others = [node["name"] for node in api.get("nodes") if node["name"] != home]
            api.post("queues", "/", "q", "actions", body={"action": "move"} | ({"node": others[0]} if others else {}))
            found: list[str] = []
            while len(found) < 3:
                if (got := await queue.get(fail=False)) is not None:
                    found.append(got.body.decode())
                    await got.ack()
                    if len(found) == 1:
                        first = time.monotonic() - began
                else:
                    await asyncio.sleep(0.05)
            return found, first

    with running(**processes) as broker:
        api = API(f"http://guest:guest@127.0.0.1:{broker.http_port}")
        found, first = asyncio.run(move(broker.port, api))
        assert found == ["1", "2", "3"]
        assert first >= rest - 0.5
