"""Moves of queues between homes: no message is lost, doubled or out of order, under any concurrent use."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pika
import pytest
from tests.brokers import bind, bodies, copied, declare, queue_of, with_channel
from tests.nodes.channels.filling import filled
from tests.nodes.homes import config_of, homes, in_loop, peers_of, propose, started, stopped, until
from tests.nodes.messages.outboxes import keep
from tests.nodes.moves.moves import is_over, move, publish, read
from tests.topology.state import state_of

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.http.warnings.moves import stalled_moves
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.records import HAND
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog
from jumpmq.topology import (
    ConsistentHashExchange,
    DeclareExchange,
    DeleteQueue,
    DeleteVirtualHost,
    ExchangeDefinition,
    MoveQueue,
    SetPolicy,
)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@in_loop
async def test_what_a_queue_holds_follows_it_before_what_is_published_meanwhile(tmp_path: Path, kind: str) -> None:
    async with homes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(first, "q", {"x-queue-type": kind})
        await bind(first, "amq.fanout", "q")
        await publish(first, "amq.fanout", "", 0, 3000)
        publishing = asyncio.ensure_future(
            asyncio.gather(publish(third, "", "q", 10_000, 1000), publish(first, "amq.fanout", "", 3000, 1000))
        )
        await asyncio.sleep(0.2)
        await move(third, "q", 2)
        await publishing
        await until(lambda: is_over(*brokers))
        found = [int(body) for body in bodies(second, "q")]
        assert [one for one in found if one < 10_000] == list(range(4000))
        assert [one for one in found if one >= 10_000] == list(range(10_000, 11_000))
        assert state_of(first.topology) == state_of(second.topology) == state_of(third.topology)
        assert first.peers.outbox is not None
        assert not any(count or octets for _, count, octets in peers_of(first).outbox.figures())
        for broker in brokers:
            await stopped(broker)
        again = [await started(config_of(home, 3, tmp_path)) for home in (1, 2, 3)]
        assert [int(body) for body in bodies(again[1], "q")] == found
        assert state_of(again[0].topology) == state_of(again[1].topology)
        assert is_over(*again)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@in_loop
async def test_what_rests_goes_along_and_rests_on_as_long(tmp_path: Path, kind: str) -> None:
    async with homes(2, tmp_path) as brokers:
        retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000, "x-ordered-retries": True}
        await declare(brokers[0], "q", {"x-queue-type": kind} | retries)
        await publish(brokers[0], "", "q", 0, 5)

        def put_back(channel: Any) -> None:
            channel.basic_nack(channel.basic_get("q")[0].delivery_tag)
            assert channel.basic_get("q")[0] is None

        await with_channel(brokers[0], put_back)
        queue = queue_of(brokers[0], "q")
        assert queue.unacknowledged_count == 5 and queue.retries is not None
        due = queue.retries.resting.next_due
        await move(brokers[0], "q", 2)
        await until(lambda: is_over(*brokers))

        def get(channel: Any) -> list[tuple[int, bool]]:
            found = []
            while (delivery := channel.basic_get("q", auto_ack=True))[0] is not None:
                found.append((int(delivery[2]), "x-jumpmq-retry" in (delivery[1].headers or {})))
            return found

        assert await with_channel(brokers[0], get) == []
    async with homes(2, tmp_path) as again:
        assert await with_channel(again[0], get) == []
        moved = queue_of(again[1], "q")
        assert moved.retries is not None and moved.retries.resting.next_due == pytest.approx(due, abs=0.001)
        assert moved.retries.hasten() == 5
        await until(lambda: moved.ready_count == 5)
        assert await with_channel(again[1], get) == [(number, False) for number in range(5)]


@in_loop
async def test_delayed_messages_are_due_when_they_were(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:

        def publish(channel: Any) -> None:
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
            channel.confirm_delivery()
            properties = pika.BasicProperties(headers={"x-delay": 3_600_000})
            channel.basic_publish("later", "", b"", properties)

        await with_channel(brokers[0], publish)
        name = "amq.delayed.later"
        home = brokers[0].topology.vhosts["/"].declared[name].definition.home
        front = queue_of(brokers[home - 1], name).front()
        assert front is not None
        await move(brokers[0], name, 3 - home)
        await until(lambda: is_over(*brokers))
        moved = queue_of(brokers[2 - home], name).front()
        assert moved is not None and moved.expires_at == pytest.approx(front.expires_at, abs=0.5)


@in_loop
async def test_what_is_put_back_while_its_queue_moves_rests_where_it_goes(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000, "x-ordered-retries": True}
        await filled(brokers[0], "q", 3, **retries)
        taken, moves = threading.Event(), threading.Event()

        def put_back(channel: Any) -> None:
            tag = channel.basic_get("q")[0].delivery_tag
            taken.set()
            assert moves.wait(30)
            channel.basic_nack(tag)
            channel.connection.process_data_events(0.2)

        putting = asyncio.ensure_future(with_channel(brokers[0], put_back))
        await asyncio.to_thread(taken.wait)
        await move(brokers[0], "q", 2)
        await until(lambda: any(one.moved for one in brokers[0].topology.vhosts["/"].departed.values()))
        moves.set()
        await putting
        await until(lambda: is_over(*brokers))
        queue = queue_of(brokers[1], "q")
        assert await with_channel(brokers[1], lambda channel: channel.basic_get("q")[0]) is None
        assert queue.status()["messages_resting"] == 3


@pytest.mark.slow
@in_loop
async def test_consumers_are_cancelled_and_find_it_where_it_is(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await filled(brokers[0], "q", 100)

        def consume(channel: Any) -> tuple[list[tuple[int, bool]], list[str]]:
            """Acknowledge every second delivery; consume again after a cancel."""
            found: list[tuple[int, bool]] = []
            cancelled: list[str] = []
            channel.basic_qos(prefetch_count=20)

            def take(channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
                found.append((int(body), delivery.redelivered))
                if len(cancelled) or len(found) % 2:
                    channel.basic_ack(delivery.delivery_tag)

            def again(frame: Any) -> None:
                cancelled.append(frame.method.consumer_tag)
                channel.basic_consume("q", take)

            channel.add_on_cancel_callback(again)
            channel.basic_consume("q", take)
            started_consuming.set()
            while len({number for number, _ in found}) < 100 or len(cancelled) < 1:
                channel.connection.process_data_events(0.05)
            channel.basic_ack(0, multiple=True)  # messages taken back are no longer the channel's: nothing happens
            channel.connection.process_data_events(0.2)
            return found, cancelled

        started_consuming = threading.Event()
        consuming = asyncio.ensure_future(with_channel(brokers[1], consume))
        await asyncio.to_thread(started_consuming.wait)
        await asyncio.sleep(0.3)
        await move(brokers[0], "q", 3)
        found, cancelled = await asyncio.wait_for(consuming, 30)
        assert len(cancelled) == 1
        twice = [number for number, again in found if again]
        assert len(found) == 100 + len(twice)
        assert len(set(twice)) == len(twice) <= 20
        await until(lambda: is_over(*brokers))
        assert queue_of(brokers[2], "q").message_count == 0


@in_loop
async def test_rings_and_bindings_stay_as_they_are(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        first, second = brokers
        await propose(first, DeclareExchange(ExchangeDefinition("/", "hash", "x-consistent-hash", durable=True)))
        await propose(first, SetPolicy("/", "p", "^q", {"message-ttl": 600_000}, 0, "queues"))
        for number in range(4):
            await declare(first, f"q{number}")
            await bind(first, "hash", f"q{number}", "3")
            await bind(first, "hash", f"q{number}", "2")
        ring = first.topology.vhosts["/"].exchanges["hash"]
        assert isinstance(ring, ConsistentHashExchange)
        before = ring.ring.state()
        await move(first, "q2", 2)
        await move(first, "q1", 2)
        assert ring.ring.state() == before
        await until(lambda: is_over(*brokers))
        assert state_of(first.topology) == state_of(second.topology)
        assert queue_of(second, "q1").limits.message_ttl == 600_000
    async with homes(2, tmp_path) as again:
        assert state_of(again[0].topology) == state_of(first.topology)


@in_loop
async def test_what_was_in_an_outbox_for_it_goes_before_what_comes_after(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(first, "q")
        await keep(third, "q", *(b"%d" % number for number in range(500)))
        await move(third, "q", 2)
        await keep(third, "q", *(b"%d" % number for number in range(500, 600)))
        await until(lambda: is_over(*brokers))
        await until(lambda: queue_of(second, "q").ready_count == 600)
        assert [int(body) for body in bodies(second, "q")] == list(range(600))


@in_loop
async def test_it_goes_on_after_either_home_was_away(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(second, "q")
        await publish(second, "", "q", 0, 500)
        await stopped(third)
        await move(first, "q", 3)
        await stopped(second)
        brokers[1] = second = await started(config_of(2, 3, tmp_path))
        assert second.topology.vhosts["/"].departed
        brokers[2] = third = await started(config_of(3, 3, tmp_path))
        await publish(first, "", "q", 500, 10)
        await until(lambda: is_over(first, second, third))
        assert [int(body) for body in bodies(third, "q")] == list(range(510))


@in_loop
async def test_deliveries_of_a_quorum_queue_are_counted_on(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[0], "q", {"x-queue-type": "quorum", "x-delivery-limit": 4})
        await publish(brokers[0], "", "q", 0, 2)

        def reject(channel: Any) -> None:
            for _ in range(2):
                channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=True)

        await with_channel(brokers[0], reject)
        await move(brokers[0], "q", 2)
        await until(lambda: is_over(*brokers))
        for broker in brokers:
            await stopped(broker)
        brokers = [await started(config_of(home, 2, tmp_path)) for home in (1, 2)]

        def get(channel: Any) -> list[tuple[bytes, Any]]:
            found = [channel.basic_get("q") for _ in range(2)]
            return [(body, (properties.headers or {}).get("x-delivery-count")) for _, properties, body in found]

        assert await with_channel(brokers[0], get) == [(b"0", 2), (b"1", 0)]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@in_loop
async def test_what_was_delivered_is_marked_also_when_all_homes_have_ended_in_order(tmp_path: Path, kind: str) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[0], "q", {"x-queue-type": kind})
        await publish(brokers[0], "", "q", 0, 3)
        await with_channel(brokers[0], lambda channel: channel.basic_get("q"))
        await move(brokers[0], "q", 2)
        await until(lambda: is_over(*brokers))
        for broker in brokers:
            await stopped(broker)
        again = [await started(config_of(home, 2, tmp_path)) for home in (1, 2)]

        def get(channel: Any) -> list[tuple[int, bool]]:
            found = [channel.basic_get("q", auto_ack=True) for _ in range(3)]
            return sorted((int(body), method.redelivered) for method, _, body in found)

        found = await with_channel(again[0], get)
        assert found[0] == (0, True)


@in_loop
async def test_back_and_forth(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await declare(brokers[0], "q", {"x-max-length": 100})
        published = 0
        for home in (2, 3, 1, 2, 1):
            await publish(brokers[home - 1], "", "q", published, 30)
            published += 30
            await move(brokers[0], "q", home)
            await until(lambda: is_over(*brokers))
        assert [int(body) for body in bodies(brokers[0], "q")] == list(range(50, 150))


@in_loop
async def test_one_that_is_deleted_on_its_way_leaves_nothing(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        first, second = brokers
        for name in ("q", "r"):
            await filled(first, name, 50)

        def hold(channel: Any) -> None:  # the move waits for the channel
            channel.basic_get("q")
            held.set()
            assert gone.wait(120)

        held, gone = threading.Event(), threading.Event()
        holding = asyncio.ensure_future(with_channel(first, hold))
        await asyncio.to_thread(held.wait)
        await move(first, "q", 2)
        await propose(second, DeleteQueue("/", "q", second.topology.vhosts["/"].declared["q"].id))
        assert not first.topology.vhosts["/"].departed
        gone.set()
        await holding
        await move(first, "r", 2)
        await propose(second, DeleteVirtualHost("/"))
        assert first.store is not None
        await first.committed()
        await stopped(second)
        await stopped(first)
        again = await started(config_of(1, 2, tmp_path))
        assert again.store is not None
        assert not again.losses


@in_loop
async def test_one_that_is_deleted_by_who_does_not_know_that_it_moves_is_gone(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        first, second = brokers
        await filled(first, "q", 5)

        def hold(channel: Any) -> None:  # the move waits for the channel
            channel.basic_get("q")
            held.set()
            assert gone.wait(120)

        held, gone = threading.Event(), threading.Event()
        holding = asyncio.ensure_future(with_channel(first, hold))
        await asyncio.to_thread(held.wait)
        before = first.topology.vhosts["/"].declared["q"].id
        try:
            await move(second, "q", 2)
            await propose(first, DeleteQueue("/", "q", before))
            for broker in brokers:
                host = broker.topology.vhosts["/"]
                assert not (host.declared or host.queues or host.departed)
        finally:
            gone.set()
        await holding
        assert state_of(first.topology) == state_of(second.topology)
        assert not any(broker.home_figures.state().moves for broker in brokers)


@in_loop
async def test_what_cannot_move_is_refused(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[0], "t", durable=False)
        await declare(brokers[0], "q")
        for name, home, reason in (
            ("t", 2, "it ends with who uses it, or with its node"),
            ("q", 3, "there is no home 3"),
        ):
            with pytest.raises(PreconditionFailed, match=reason):
                await move(brokers[0], name, home)
        queue = brokers[0].topology.vhosts["/"].declared["q"].id
        await propose(brokers[0], MoveQueue("/", "none", 1, 2))
        await move(brokers[0], "q", 1)
        assert brokers[0].topology.vhosts["/"].declared["q"].id == queue


@in_loop
async def test_what_a_move_waits_for_is_said_and_it_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The API shows the reason of a waiting move, here an uncommitted transaction; later the move goes on."""
    async with homes(2, tmp_path, timing=Timing(stalled_move=0.2, settle_grace=0.1)) as brokers:
        await filled(brokers[0], "q", 5)

        def hold(channel: Any) -> None:
            channel.tx_select()
            for _ in range(2):
                channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
            held.set()
            assert committed.wait(120)
            channel.tx_commit()

        held, committed = threading.Event(), threading.Event()
        holding = asyncio.ensure_future(with_channel(brokers[0], hold))
        await asyncio.to_thread(held.wait)
        await move(brokers[0], "q", 2)
        waits = "waits for consumers to settle 2 messages, or to commit their transactions"
        await until(lambda: waits in caplog.text)
        (warning,) = stalled_moves([broker.home_figures.state() for broker in brokers])
        assert (warning.name, waits.startswith(f"waits for {warning.waits_for}")) == ("q", True)
        committed.set()
        await holding
        await until(lambda: is_over(*brokers))
        assert bodies(brokers[1], "q") == [b"2", b"3", b"4"]
        await until(lambda: not any(broker.home_figures.state().moves for broker in brokers))


@in_loop
async def test_a_number_that_a_queue_has_had_is_never_given_again(tmp_path: Path) -> None:
    """Numbers of queues are never reused: a restarted home would confuse its queues with those of its peers."""
    async with homes(2, tmp_path) as brokers:
        first = brokers[0]
        for name in ("q", "r"):
            await declare(first, name)
            await publish(first, "", name, 0, 5)

        def hold(channel: Any) -> None:  # the move waits for the channel
            channel.basic_get("q")
            held.set()
            assert moved.wait(120)

        held, moved = threading.Event(), threading.Event()
        holding = asyncio.ensure_future(with_channel(first, hold))
        await asyncio.to_thread(held.wait)
        await move(first, "q", 2)
        await move(first, "r", 2)
        await until(lambda: not first.topology.vhosts["/"].declared["r"].definition.before)
        moved.set()
        await holding
        await until(lambda: is_over(*brokers))
        await move(first, "r", 1)
        await until(lambda: is_over(*brokers))
        for start_again in (2, 1):
            await stopped(brokers[start_again - 1])
            brokers[start_again - 1] = await started(config_of(start_again, 2, tmp_path))
            assert state_of(brokers[0].topology) == state_of(brokers[1].topology)
        await move(brokers[0], "r", 2)
        await until(lambda: is_over(*brokers))
        assert len(bodies(brokers[1], "r")) == 5


@in_loop
async def test_definitions_that_differ_are_found_with_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[0], "q")
        await move(brokers[1], "q", 2)
        await until(lambda: is_over(*brokers))
        assert "not those of the first one" not in caplog.text
        with brokers[1].turns.turn():
            brokers[1].topology.records.put_counter(2, 99)
        await declare(brokers[0], "r")
        await until(lambda: "the definitions of this process are not those of the first one" in caplog.text)


@in_loop
async def test_a_stream_moves_with_its_files_and_offsets(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(first, "s", {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 2000})
        await publish(third, "", "s", 0, 500)
        files = (tmp_path / "home-1" / "streams").glob("*/*")
        before = {path.name: path.stat().st_ino for path in files}
        assert len(before) > 1
        publishing = asyncio.ensure_future(publish(third, "", "s", 500, 300))
        await asyncio.sleep(0.1)
        await move(third, "s", 2)
        await publishing
        await until(lambda: is_over(*brokers))
        await second.committed()
        assert read(second, "s") == [(number, number) for number in range(800)]
        after = {path.name: path.stat().st_ino for path in (tmp_path / "home-2" / "streams").glob("*/*")}
        assert before.items() <= after.items()
        assert not list((tmp_path / "home-1" / "streams").glob("*/*"))
        await publish(first, "", "s", 800, 10)
        await move(third, "s", 1)
        await until(lambda: is_over(*brokers))
        for broker in brokers:
            await stopped(broker)
        again = [await started(config_of(home, 3, tmp_path)) for home in (1, 2, 3)]
        assert read(again[0], "s") == [(number, number) for number in range(810)]
        assert not any(broker.losses for broker in again)


@pytest.mark.slow
@in_loop
async def test_consumers_of_a_stream_go_on_where_it_is(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await declare(brokers[0], "s", {"x-queue-type": "stream"})
        await publish(brokers[0], "", "s", 0, 50)
        arguments = {"x-stream-offset": "first", "x-consumer-group": "g"}

        def consume(channel: Any) -> list[tuple[int, bool]]:
            found: list[tuple[int, bool]] = []
            channel.basic_qos(prefetch_count=7)

            def take(channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
                found.append((int(body), delivery.redelivered))
                if len(found) == 20:
                    half.set()
                if len(found) != 20 or moved.is_set():
                    channel.basic_ack(delivery.delivery_tag)

            def again(frame: Any) -> None:
                moved.set()
                channel.basic_consume("s", take, arguments=arguments)

            channel.add_on_cancel_callback(again)
            channel.basic_consume("s", take, arguments=arguments)
            while {number for number, _ in found} != set(range(60)):
                channel.connection.process_data_events(0.05)
            return found

        half, moved = threading.Event(), threading.Event()
        consuming = asyncio.ensure_future(with_channel(brokers[1], consume))
        await asyncio.to_thread(half.wait)
        await move(brokers[0], "s", 3)
        await publish(brokers[0], "", "s", 50, 10)
        found = await asyncio.wait_for(consuming, 60)
        assert [number for number, again in found if not again] == list(range(60))


@pytest.mark.slow
@in_loop
async def test_a_stream_arrives_whatever_is_killed_when(tmp_path: Path) -> None:
    """A stream arrives after a crash at any step of its move, simulated by copies of the directories."""
    async with homes(3, tmp_path / "running") as brokers:
        await declare(brokers[0], "s", {"x-queue-type": "stream"})
        await publish(brokers[2], "", "s", 0, 200)
        await move(brokers[2], "s", 2)
        publishing = asyncio.ensure_future(publish(brokers[2], "", "s", 200, 100))
        copies = 0
        while not (publishing.done() and is_over(*brokers)):
            copied(tmp_path / "running", tmp_path / str(copies))
            copies += 1
            await asyncio.sleep(0.02)
    for number in range(0, copies, max(1, copies // 6)):
        await check_stream(tmp_path / str(number))


@pytest.mark.parametrize("step", [(StreamFiles, "take_over"), (StreamLog, "forget_handed")])
@in_loop
async def test_a_stream_has_nothing_twice_when_its_new_home_is_killed_between_files_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    kind, name = step
    done, copy = getattr(kind, name), tmp_path / "copy"

    def killed(*arguments: Any) -> Any:
        found = done(*arguments)
        if not copy.exists():
            copied(tmp_path / "running", copy)
        return found

    arguments = {"x-stream-offset": "first", "x-consumer-group": "g"}
    async with homes(2, tmp_path / "running") as brokers:
        first, second = brokers
        await declare(first, "s", {"x-queue-type": "stream"})
        await publish(first, "", "s", 0, 20)
        await with_channel(first, lambda channel: read_by_group(channel, 15, arguments))
        handlers, held = peers_of(second).links.handlers, []
        handed = handlers[HAND]
        handlers[HAND] = lambda link, payload: held.append((link, bytes(payload)))
        await move(first, "s", 2)
        await publish(second, "", "s", 20, 3)
        await until(lambda: held)
        consuming = asyncio.ensure_future(with_channel(second, lambda channel: read_by_group(channel, 8, arguments)))
        await until(lambda: queue_of(second, "s").consumers)
        monkeypatch.setattr(kind, name, killed)
        handed(held[0][0], memoryview(held[0][1]))
        assert await consuming == list(range(15, 23))
        await until(lambda: is_over(*brokers) and copy.exists())
    monkeypatch.undo()
    again = [await started(config_of(home, 2, copy)) for home in (1, 2)]
    await until(lambda: is_over(*again))
    await again[1].committed()
    assert read(again[1], "s") == [(number, number) for number in range(23)]
    offsets = queue_of(again[1], "s").offsets
    assert offsets is not None
    position = offsets.get("g")
    assert position is not None
    assert 15 <= position.offset <= 23


def read_by_group(channel: Any, count: int, arguments: dict[str, Any]) -> list[int]:
    """Consume so many messages of a stream, and acknowledge the messages."""
    found: list[int] = []

    def take(channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
        found.append(int(body))
        channel.basic_ack(delivery.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("s", take, arguments=arguments)
    while len(found) < count:
        channel.connection.process_data_events(0.05)
    return found


async def check_stream(directory: Path) -> None:
    """Start three homes from directories: the stream has all confirmed messages, in order and once."""
    brokers = [await started(config_of(home, 3, directory)) for home in (1, 2, 3)]
    try:
        await until(lambda: is_over(*brokers))
        await brokers[1].committed()
        found = [one for _, one in read(brokers[1], "s")]
        assert found == list(range(len(found)))
        assert len(found) >= 200
        assert not any(broker.losses for broker in brokers)
    finally:
        for broker in brokers:
            await stopped(broker)


REFUSING = {"x-overflow": "reject-publish", "x-max-length": 1000}
"""Arguments of a queue to which dead letters of other homes are sent at once, without the outbox."""


@pytest.mark.parametrize("arguments", [{}, REFUSING], ids=["outbox", "at once"])
@pytest.mark.parametrize("begins_first", [True, False])
@in_loop
async def test_dead_letters_for_a_home_that_is_down_are_not_lost_with_the_move(
    tmp_path: Path, begins_first: bool, arguments: dict[str, Any]
) -> None:
    """Dead letters for a stopped home survive a move, in the queue or in the outbox.

    The failure comes before or after the queue begins to move.
    """
    async with homes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(third, "dead", arguments)
        await declare(first, "q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        await publish(first, "", "q", 0, 10)
        rejected, moving_on = threading.Event(), threading.Event()

        def reject(channel: Any) -> None:
            tags = [channel.basic_get("q")[0].delivery_tag for _ in range(10)]
            if begins_first:
                assert moving_on.wait(120)
            for tag in tags:
                channel.basic_reject(tag, requeue=False)
            channel.connection.process_data_events(0.1)
            rejected.set()
            assert moving_on.wait(120)

        rejecting = asyncio.ensure_future(with_channel(first, reject))
        if begins_first:
            await until(lambda: queue_of(first, "q").unacknowledged_count == 10)
            contents = queue_of(first, "q")
            await stopped(third)
            await move(first, "q", 2)
            moving_on.set()
        else:
            contents = queue_of(first, "q")
            await stopped(third)
            await asyncio.to_thread(rejected.wait)
            await move(first, "q", 2)
            moving_on.set()
        await rejecting
        if arguments:
            await until(lambda: contents.undelivered_count)
        brokers[2] = third = await started(config_of(3, 3, tmp_path))
        await until(lambda: is_over(first, second, third))
        await until(lambda: queue_of(third, "dead").message_count >= 10)
        assert [int(body) for body in bodies(third, "dead")] == list(range(10))


@in_loop
async def test_a_queue_stays_until_the_homes_of_its_dead_letters_have_answered(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        first, _, third = brokers
        await declare(third, "dead", REFUSING)
        await declare(first, "q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        await publish(first, "", "q", 0, 1)
        third.alarms.disk_free_limit = 1 << 60
        third.alarms.look()  # so that the home sends no answer
        await with_channel(
            first, lambda channel: channel.basic_nack(channel.basic_get("q")[0].delivery_tag, False, False)
        )
        await move(first, "q", 2)
        await until(lambda: queue_of(third, "dead").message_count == 1)
        await asyncio.sleep(0.3)
        assert first.topology.vhosts["/"].departed
        third.alarms.disk_free_limit = 0
        third.alarms.look()
        await until(lambda: is_over(*brokers))
        assert bodies(third, "dead") == [b"0"]
