"""Streams move to another machine by copies of their files; no message is lost, doubled or out of order."""

import asyncio
import re
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import copied, declare, queue_of, stopping, with_channel
from tests.nodes.fixed_directory import FixedDirectory
from tests.nodes.homes import NODES, config_of, in_loop, nodes, peers_of, propose, started, stopped, until
from tests.nodes.moves.moves import is_over, publish, read

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker import Broker
from jumpmq.broker.memory import resources
from jumpmq.nodes.moves import stream_moves
from jumpmq.nodes.moves.stream_offers import StreamOffers
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.records import COPY, GIVEN, PIECE
from jumpmq.store.files import Files
from jumpmq.store.stream_copy import SegmentCopy
from jumpmq.store.stream_files import StreamFiles
from jumpmq.topology import DeleteQueue, DeleteVirtualHost, ForgetNode, SetPolicy

SMALL = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 20_000}


def move(broker: Broker, name: str, home: int) -> None:
    """Move a stream of the local node to the second node."""
    assert broker.peers.moves.begin(broker.topology.vhosts["/"].declared[name], home)


def shown(broker: Broker, name: str) -> dict[str, Any]:
    """Return the fields of a stream's status about the move."""
    status = queue_of(broker, name).status()
    return {key: value for key, value in status.items() if key.startswith("mov")}


def copies(directory: Path) -> list[Path]:
    """Return the files of streams copied from other nodes, for a move in progress."""
    return sorted(directory.glob("home-*/streams/*.coming/*"))


def segments(directory: Path) -> list[Path]:
    """The files of streams at the first node."""
    return sorted(directory.glob("home-1/streams/*/*.segment"))


async def over(directory: Path, *brokers: Broker) -> None:
    """Wait until a stream has moved, without remains of the move."""
    await until(lambda: is_over(*brokers) and not any(broker.home_figures.state().moves for broker in brokers))
    await asyncio.gather(*(broker.committed() for broker in brokers))
    assert not copies(directory)


@in_loop
async def test_a_stream_moves_with_all_that_it_has(tmp_path: Path) -> None:
    async with nodes(3, tmp_path) as brokers:
        first, second, third = brokers
        await declare(first, "s", SMALL)
        await publish(third, "", "s", 0, 500)
        assert len(segments(tmp_path)) > 2
        stream = queue_of(first, "s")
        marks = [stream.view.mark_of(offset) for offset in range(500)]
        publishing = asyncio.ensure_future(publish(third, "", "s", 500, 300))
        await asyncio.sleep(0.1)
        with first.turns.turn():
            move(first, "s", 2)
        assert shown(first, "s") == {"moving_to": "two@host"}
        with pytest.raises(PreconditionFailed, match="is moving already"):
            move(first, "s", 3)
        await publishing
        await until(lambda: "s" in second.topology.vhosts["/"].queues)
        await over(tmp_path, *brokers)
        assert read(second, "s") == [(number, number) for number in range(800)]
        assert [queue_of(second, "s").view.mark_of(offset) for offset in range(500)] == marks
        assert not list((tmp_path / "home-1" / "streams").glob("*/*"))
        assert shown(second, "s") == {}
        await publish(first, "", "s", 800, 10)
        move(second, "s", 1)
        await until(lambda: "s" in first.topology.vhosts["/"].queues)
        await over(tmp_path, *brokers)
        assert read(first, "s") == [(number, number) for number in range(810)]
        assert not any(broker.losses for broker in brokers)


@in_loop
async def test_consumers_go_on_where_they_were(tmp_path: Path) -> None:
    """After the move, a group continues after its settled messages, a plain consumer at its offset."""
    async with nodes(2, tmp_path, timing=Timing(settle_grace=0.5)) as brokers:
        await declare(brokers[0], "s", SMALL)
        await publish(brokers[0], "", "s", 0, 50)

        def consume(channel: Any, offset: bool) -> list[tuple[int, int, bool]]:
            found: list[tuple[int, int, bool]] = []
            cancelled: list[bool] = []
            channel.basic_qos(prefetch_count=7)

            def take(channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
                found.append((properties.headers["x-stream-offset"], int(body), delivery.redelivered))
                if len(found) == 20:
                    half[offset].set()
                if len(found) != 20 or cancelled:
                    channel.basic_ack(delivery.delivery_tag)

            def begin() -> None:
                group = {"x-consumer-group": "g", "x-stream-offset": "first"}
                start = {"x-stream-offset": found[-1][0] + 1 if found else 0}
                channel.basic_consume("s", take, arguments=start if offset else group)

            def again(frame: Any) -> None:
                cancelled.append(True)
                begin()

            channel.add_on_cancel_callback(again)
            begin()
            while {number for _, number, _ in found} != set(range(60)):
                channel.connection.process_data_events(0.05)
            assert cancelled
            return found

        half = [threading.Event(), threading.Event()]
        consuming = [
            asyncio.ensure_future(with_channel(brokers[1], partial(consume, offset=offset))) for offset in (False, True)
        ]
        await asyncio.gather(*(asyncio.to_thread(event.wait) for event in half))
        move(brokers[0], "s", 2)
        await until(lambda: "s" in brokers[1].topology.vhosts["/"].queues)
        await publish(brokers[0], "", "s", 50, 10)
        for found in await asyncio.wait_for(asyncio.gather(*consuming), 60):
            assert [(number, number) for number in range(60)] == [one[:2] for one in found if not one[2]]


@in_loop
async def test_what_has_come_stays_when_either_node_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied part stays when either node restarts; the rest follows, and damaged parts are copied again."""
    written, write = [0], SegmentCopy.write
    room = threading.Event()

    def slow(self: Any, octets: bytes, *, last: bool) -> None:
        if written[0] > 30_000:
            assert room.wait(120)
        write(self, octets, last=last)
        written[0] += len(octets)

    monkeypatch.setattr(SegmentCopy, "write", slow)
    known = FixedDirectory("cluster", "s" * 64)

    async def start(home: int) -> Broker:
        return await started(config_of(home, 2, tmp_path, node=NODES[home - 1]), known, Timing(piece_octets=1000))

    first, second = await start(1), await start(2)
    try:
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 500)
        octets = sum(extent.size for extent in queue_of(first, "s").move.extents)  # type: ignore[attr-defined]
        move(first, "s", 2)
        await until(lambda: written[0] > 30_000)
        ending = asyncio.ensure_future(stopped(second))
        await asyncio.sleep(0.1)
        room.set()
        await ending
        before = written[0]
        assert before < octets
        copied = copies(tmp_path)[0]
        spoiled = bytearray(copied.read_bytes())
        spoiled[-300] ^= 1
        copied.write_bytes(spoiled)
        await stopped(first)
        first = await start(1)
        assert shown(first, "s") == {"moving_to": "two@host"}
        second = await start(2)
        await publish(first, "", "s", 500, 10)
        await until(lambda: "s" in second.topology.vhosts["/"].queues)
        await over(tmp_path, first, second)
        assert read(second, "s") == [(number, number) for number in range(510)]
        assert written[0] < octets + 10_000
    finally:
        room.set()


@in_loop
async def test_what_cannot_be_copied_stays_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that cannot be copied stays and serves: a full or failing disk, or a damaged segment."""
    async with nodes(2, tmp_path) as brokers:
        first, second = brokers
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 500)

        async def fails(reason: str) -> None:
            move(first, "s", 2)
            await until(lambda: "moving_to" not in shown(first, "s"))
            assert re.match(f"to node 'two@host': {reason}", shown(first, "s")["move_failed"])
            assert re.search(f"stays here, as it cannot be moved to node 'two@host': {reason}", caplog.text)
            await publish(first, "", "s", queue_of(first, "s").next_seq, 10)
            await until(lambda: not list(tmp_path.glob("home-2/streams/*.coming")))
            assert not first.home_figures.state().moves

        with monkeypatch.context() as full:
            full.setattr(resources, "disk_free", lambda directory: 50_000_000)
            await fails(r"\d+ octets are to be copied, and its disk has room for 0")
        with monkeypatch.context() as full:

            def no_room(self: Files, file: int, offset: int, buffers: Any) -> None:
                raise OSError(28, "No space left on device")

            def write(self: Any, octets: bytes, *, last: bool) -> None:
                no_room(self._files, 0, 0, [octets])

            full.setattr(SegmentCopy, "write", write)
            await fails("No space left on device")
        path = segments(tmp_path)[1]
        whole = path.read_bytes()
        path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
        await fails(f"{path.name} is damaged ")
        path.unlink()
        await fails(f"{path.name} is not there any more")
        path.write_bytes(whole)
        move(first, "s", 2)
        await until(lambda: "s" in second.topology.vhosts["/"].queues)
        await over(tmp_path, first, second)
        assert read(second, "s") == [(number, number) for number in range(540)]


@in_loop
async def test_one_that_is_deleted_or_trimmed_or_recalled_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, held, room = SegmentCopy.write, threading.Event(), threading.Event()

    def slow(self: Any, octets: bytes, *, last: bool) -> None:
        held.set()
        assert room.wait(120)
        write(self, octets, last=last)

    monkeypatch.setattr(SegmentCopy, "write", slow)

    async def begin() -> None:
        held.clear()
        room.clear()
        move(first, "s", 2)
        await asyncio.to_thread(held.wait)

    async with nodes(2, tmp_path, timing=Timing(piece_octets=1000)) as brokers:
        first, second = brokers
        try:
            for _ in range(2):
                await declare(first, "s", SMALL)
                await publish(first, "", "s", 0, 500)
                await begin()
                await propose(second, DeleteQueue("/", "s", second.topology.vhosts["/"].declared["s"].id))
                room.set()
                await until(lambda: not list(tmp_path.glob("home-2/streams/*.coming")))
                assert not first.home_figures.state().moves
            await declare(first, "s", SMALL)
            await publish(first, "", "s", 0, 500)
            await begin()
            first.peers.moves.stop_copy(first.topology.vhosts["/"].declared["s"])
            room.set()
            await until(lambda: not list(tmp_path.glob("home-2/streams/*.coming")))
            assert shown(first, "s") == {}
            await begin()
            await propose(second, SetPolicy("/", "p", "^s$", {"max-length-bytes": 40_000}, 0, "streams"))
            trimmed = queue_of(first, "s").view.ready_range()
            assert trimmed[0] > 0
            room.set()
            await until(lambda: "s" in second.topology.vhosts["/"].queues)
            await over(tmp_path, first, second)
            assert read(second, "s") == [(number, number) for number in range(trimmed[0], 500)]
            move(second, "s", 1)
            await propose(second, DeleteVirtualHost("/"))
            await until(lambda: not copies(tmp_path) and not second.home_figures.state().moves)
            assert not any(broker.losses for broker in brokers)
        finally:
            room.set()


@in_loop
async def test_a_late_answer_to_an_earlier_attempt_does_not_refuse_a_copy(tmp_path: Path) -> None:
    """A late answer to an earlier attempt does not refuse a copy, after retention removed the requested file."""
    async with nodes(2, tmp_path) as (first, second):
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 500)
        begun = peers_of(second).links.handlers[COPY]
        late = GIVEN.pack(queue_of(first, "s").id, 1000, 0, 0, False)

        def answered(*arguments: Any) -> None:
            begun(*arguments)
            peers_of(second).links.handlers[COPY] = begun
            link = peers_of(second).links.to(1)
            assert link is not None
            peers_of(second).links.handlers[PIECE](link, memoryview(late))

        peers_of(second).links.handlers[COPY] = answered
        move(first, "s", 2)
        await over(tmp_path, first, second)
        assert read(second, "s") == [(number, number) for number in range(500)]


@in_loop
async def test_a_disk_that_is_full_at_the_last_moment_holds_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk at the last step delays the move, which continues once there is room; publishes are kept."""
    is_full, finish = threading.Event(), StreamFiles.finish_coming
    is_full.set()

    def finish_coming(self: StreamFiles, number: int, handed: Any) -> Path:
        if handed is not None and is_full.is_set():
            raise OSError(28, "No space left on device")
        return finish(self, number, handed)

    monkeypatch.setattr(StreamFiles, "finish_coming", finish_coming)
    async with nodes(2, tmp_path, timing=Timing(asked_again=0.1)) as brokers:
        first, second = brokers
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 500)
        move(first, "s", 2)
        what = "which it refused: No space left on device"
        await until(lambda: any(what in one.waits_for for one in first.home_figures.state().moves))
        assert "cannot be copied to home 2: No space left on device; the copy is tried again" in caplog.text
        await publish(first, "", "s", 500, 10)
        is_full.clear()
        await over(tmp_path, first, second)
        assert read(second, "s") == [(number, number) for number in range(510)]


@in_loop
async def test_what_is_lost_at_the_last_moment_is_told_and_the_rest_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last segment at the last step is reported, and the rest arrives."""
    copied = StreamOffers.copied

    async def losing(self: StreamOffers, stream: Any, home: int, to: int, tell: Any) -> None:
        if to:
            segments(tmp_path)[-1].unlink()
        await copied(self, stream, home, to, tell)
        if not to:
            await publish(first, "", "s", 500, 10)

    monkeypatch.setattr(StreamOffers, "copied", losing)
    async with nodes(2, tmp_path) as brokers:
        first, second = brokers
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 500)
        move(first, "s", 2)
        await until(lambda: "s" in second.topology.vhosts["/"].queues)
        await over(tmp_path, first, second)
        await publish(first, "", "s", 510, 10)
        found = read(second, "s")
        lost = found[-11][1] + 1
        assert found == [(number, number) for number in [*range(lost), *range(510, 520)]]
        assert f"offsets {lost} to 509 are lost" in str(second.losses)


@in_loop
async def test_streams_are_rebalanced_and_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_moves, "AT_ONCE", 1)
    async with nodes(2, tmp_path) as brokers:
        first, second = brokers
        names = [f"s{number}" for number in range(6)]
        for name in names:
            await declare(first, name, SMALL)
            await publish(first, "", name, 0, 20)
        first.peers.moves.rebalance()
        await until(lambda: len(second.topology.vhosts["/"].queues) == 3)
        await over(tmp_path, first, second)
        left = list(first.topology.vhosts["/"].queues)
        assert len(left) == 3
        for name in left:
            move(first, name, 2)
        await until(lambda: len(second.topology.vhosts["/"].queues) == 6)
        await over(tmp_path, first, second)
        for name in names:
            assert read(second, name) == [(number, number) for number in range(20)]


@in_loop
async def test_one_whose_new_node_is_forgotten_stays(tmp_path: Path) -> None:
    async with nodes(2, tmp_path) as brokers:
        first, second = brokers
        await declare(first, "s", SMALL)
        await publish(first, "", "s", 0, 20)
        await stopped(second)
        move(first, "s", 2)
        await propose(first, ForgetNode("two@host"))
        await until(lambda: "moving_to" not in shown(first, "s"))
        assert shown(first, "s")["move_failed"] == "to node 'two@host': it has left the cluster"
        assert read(first, "s") == [(number, number) for number in range(20)]


@in_loop
async def test_what_nobody_goes_on_with_is_deleted(tmp_path: Path) -> None:
    """Files of an abandoned move are deleted: at once with the stream, otherwise after a while."""

    def leave(number: int) -> Path:
        directory = tmp_path / "home-2" / "streams" / f"{number}.coming"
        directory.mkdir(parents=True)
        (directory / "00000000000000000000.segment").write_bytes(b"x")
        return directory

    known = FixedDirectory("cluster", "s" * 64)
    first, second = [await started(config_of(home, 2, tmp_path, node=NODES[home - 1]), known) for home in (1, 2)]
    await declare(first, "s", SMALL)
    await stopped(second)
    of_stream, of_none = leave(first.topology.vhosts["/"].declared["s"].id), leave(77)
    second = await started(config_of(2, 2, tmp_path, node=NODES[1]), known, Timing(copies_look=0.1))
    await until(lambda: not of_none.exists())
    await asyncio.sleep(0.3)
    assert of_stream.exists()
    await stopped(second)
    timing = Timing(copies_kept=0.1, copies_look=0.1)
    await started(config_of(2, 2, tmp_path, node=NODES[1]), known, timing)
    await until(lambda: not of_stream.exists())


@pytest.mark.slow
@in_loop
async def test_a_stream_arrives_whatever_is_killed_when(tmp_path: Path) -> None:
    """A stream arrives after a crash at any step of its move, simulated by copies of the directories."""
    timing = Timing(near_octets=1000)
    async with nodes(2, tmp_path / "running", timing=timing) as brokers:
        await declare(brokers[0], "s", SMALL)
        await publish(brokers[1], "", "s", 0, 500)
        move(brokers[0], "s", 2)
        await brokers[0].committed()
        publishing = asyncio.ensure_future(publish(brokers[1], "", "s", 500, 100))
        count = 0
        while not (publishing.done() and is_over(*brokers)):
            copied(tmp_path / "running", tmp_path / str(count))
            count += 1
            await asyncio.sleep(0.01)
    known = FixedDirectory("cluster", "s" * 64)
    for number in range(0, count, max(1, count // 12)):
        directory = tmp_path / str(number)
        configs = [config_of(home, 2, directory, node=NODES[home - 1]) for home in (1, 2)]
        async with stopping():
            again = [await started(config, known, timing) for config in configs]
            await until(lambda: "s" in again[1].topology.vhosts["/"].queues)  # noqa: B023
            await over(directory, *again)
            found = [one for _, one in read(again[1], "s")]
            assert found == list(range(len(found)))
            assert len(found) >= 500
            assert not any(broker.losses for broker in again)
