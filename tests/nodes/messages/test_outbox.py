"""Batches for queues of remote homes are kept until stored there, exactly once."""

import asyncio
import errno
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from tests.brokers import bind, bodies, copied, declare, queue_of
from tests.nodes.homes import config_of, homes, in_loop, peers_of, propose, started, stopped, until
from tests.nodes.messages.outboxes import PERSISTENT, TRANSIENT, keep

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker import Broker
from jumpmq.broker.peers import Forwarding
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport import records
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.records import LOG, SLICE_TAKEN, TAKEN
from jumpmq.queues import Outcome
from jumpmq.store.log import Log
from jumpmq.topology import DeclareQueue, DeleteQueue


def kept(broker: Broker) -> list[tuple[int, int, int]]:
    assert broker.peers.outbox is not None
    return peers_of(broker).outbox.figures()


async def is_forwarded(broker: Broker, forwarding: Forwarding) -> bool:
    assert broker.peers.outbox is not None
    return await broker.peers.outbox.forwarded(forwarding)


@in_loop
async def test_what_is_forwarded_is_on_the_home_s_disk_in_order(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        for start in range(0, 3000, 100):
            forwarding = await keep(first, "q", *(b"%d" % number for number in range(start, start + 100)))
        assert await is_forwarded(first, forwarding)
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert first.memory.by_kind["staged"] == 0
        await stopped(second)
        again = await started(config_of(2, 2, tmp_path))
        assert bodies(again, "q") == [b"%d" % number for number in range(3000)]


@in_loop
async def test_what_is_for_a_home_that_is_down_waits_also_over_restarts(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        await keep(first, "q", b"before")
        await until(lambda: bodies(second, "q") == [b"before"])
        await stopped(second)
        await until(lambda: not peers_of(first).links.homes)
        assert not await is_forwarded(first, await keep(first, "q", *(b"%d" % number for number in range(5000))))
        await keep(first, "q", b"transient", properties=TRANSIENT)
        await stopped(first)
        first = await started(config_of(1, 2, tmp_path))
        ((home, count, octets),) = kept(first)
        assert (home, count) == (2, 5001)
        assert octets > 5001 * 100
        await keep(first, "q", b"after")
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: kept(first) == [(2, 0, 0)])
        expected = [b"before", *(b"%d" % number for number in range(5000)), b"transient", b"after"]
        assert bodies(second, "q") == expected
        queue = queue_of(second, "q")
        assert [one.body for one in queue.peek(1, queue.next_seq) if not one.persistent] == [b"transient"]
        assert first.memory.by_kind["staged"] == 0


@in_loop
async def test_links_that_break_double_nothing(tmp_path: Path) -> None:
    random = Random(5)
    async with homes(2, tmp_path) as (first, second):
        for name in ("a", "b", "c"):
            await declare(second, name)
        await declare(second, "s", {"x-queue-type": "stream"})
        expected: dict[str, list[bytes]] = {name: [] for name in ("a", "b", "c", "s")}
        for number in range(300):
            name = random.choice("abcs")
            texts = [b"%d-%d" % (number, place) + bytes(random.choice((1, 5000))) for place in range(20)]
            expected[name] += texts
            await keep(first, name, *texts)
            if random.random() < 0.1 and (link := peers_of(first).links.to(2)) is not None:
                link.close()
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert {name: bodies(second, name) for name in "abc"} == {name: expected[name] for name in "abc"}
        stream = queue_of(second, "s")
        await second.committed()
        assert [one.body for one in stream.peek(0, stream.next_seq)] == expected["s"]


@in_loop
async def test_an_answer_that_is_lost_has_nothing_published_twice(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        links = peers_of(first).links
        answered = links.handlers[TAKEN]
        links.handlers[TAKEN] = lambda link, payload: link.close()
        await keep(first, "q", b"1", b"2")
        await until(lambda: bodies(second, "q") == [b"1", b"2"])
        await keep(first, "q", b"3")
        await stopped(second)
        links.handlers[TAKEN] = answered
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert bodies(second, "q") == [b"1", b"2", b"3"]


@in_loop
async def test_what_a_home_may_have_delivered_before_it_was_killed_is_marked_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        await second.committed()
        killed = tmp_path / "killed"
        copied(tmp_path / "home-2", killed)  # before its commit with the message is on disk
        answered = peers_of(first).links.handlers[TAKEN]
        peers_of(first).links.handlers[TAKEN] = lambda link, payload: None
        await keep(first, "q", b"1")
        await until(lambda: bodies(second, "q") == [b"1"])
        await stopped(second)
        shutil.rmtree(tmp_path / "home-2")
        killed.rename(tmp_path / "home-2")
        peers_of(first).links.handlers[TAKEN] = answered
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: kept(first) == [(2, 0, 0)])
        queue = queue_of(second, "q")
        assert [(one.body, one.redelivered) for one in queue.peek(1, queue.next_seq)] == [(b"1", True)]
        await stopped(second)
        second = await started(config_of(2, 2, tmp_path))  # a restart in order
        queue = queue_of(second, "q")
        assert [(one.body, one.redelivered) for one in queue.take(1)] == [(b"1", True)]


@in_loop
async def test_what_a_home_had_taken_before_it_refused_and_was_killed_is_marked(tmp_path: Path) -> None:
    async with homes(2, tmp_path, timing=Timing(refusal_pause=1.0)) as (first, second):
        await declare(second, "q")
        await second.committed()
        killed = tmp_path / "killed"
        copied(tmp_path / "home-2", killed)  # before its commit with the message is on disk
        answered, refusals = peers_of(first).links.handlers[TAKEN], []

        def refused(link: Link, payload: memoryview) -> None:
            if not SLICE_TAKEN.unpack(payload)[2]:
                refusals.append(SLICE_TAKEN.unpack(payload))
                answered(link, payload)

        peers_of(first).links.handlers[TAKEN] = refused
        await keep(first, "q", b"1")
        await until(lambda: bodies(second, "q") == [b"1"])
        second.alarms.disk_free_limit = 1 << 60
        second.alarms.look()
        await keep(first, "q", b"2")
        await until(lambda: refusals)
        await stopped(second)
        shutil.rmtree(tmp_path / "home-2")
        killed.rename(tmp_path / "home-2")
        peers_of(first).links.handlers[TAKEN] = answered
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: kept(first) == [(2, 0, 0)])
        queue = queue_of(second, "q")
        assert [(one.body, one.redelivered) for one in queue.peek(1, queue.next_seq)] == [(b"1", True), (b"2", False)]


@in_loop
async def test_what_an_older_state_of_the_disk_still_has_is_not_published_again(tmp_path: Path) -> None:
    """Messages answered before a crash, and still in the older state of the disk, are not published again."""
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        peers_of(first).links.handlers[TAKEN] = lambda link, payload: None
        await keep(first, "q", b"1", b"2")
        await until(lambda: bodies(second, "q") == [b"1", b"2"])
        await second.committed()
        copied(tmp_path / "home-1", tmp_path / "copy")  # as after a kill
        await stopped(first)
        shutil.rmtree(tmp_path / "home-1")
        (tmp_path / "copy").rename(tmp_path / "home-1")
        second.set_limits(memory=0)
        first = await started(config_of(1, 2, tmp_path))
        assert kept(first)[0][1] == 2
        await keep(first, "q", b"3")
        second.set_limits(memory=1 << 30)
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert bodies(second, "q") == [b"1", b"2", b"3"]


@in_loop
async def test_what_is_kept_at_another_home_than_the_first_is_sent_when_it_starts_again(tmp_path: Path) -> None:
    """Messages kept at another home than the first are sent after its restart."""
    async with homes(2, tmp_path) as (first, second):
        await declare(first, "q")
        first.set_limits(memory=0)
        await keep(second, "q", b"1", b"2")
        await stopped(second)
        first.set_limits(memory=1 << 30)
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: bodies(first, "q") == [b"1", b"2"])
        await until(lambda: kept(second) == [(1, 0, 0)])


@in_loop
async def test_what_is_damaged_on_its_way_is_named_and_waited_for_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        second.set_limits(memory=0)
        await keep(first, "q", b"that is damaged")
        queue = first.topology.vhosts["/"].declared["q"].id
        await stopped(first)
        for path in (tmp_path / "home-1").rglob("*.log"):
            path.write_bytes(path.read_bytes().replace(b"that is damaged", b"that is DAMAGED"))
        first = await started(config_of(1, 2, tmp_path))
        second.set_limits(memory=1 << 30)
        assert first.peers.outbox is not None
        await until(lambda: not peers_of(first).outbox.has_for(queue))
        assert kept(first) == [(2, 0, 0)]
        assert "1 messages for" in caplog.text
        await keep(first, "q", b"2")
        await until(lambda: bodies(second, "q") == [b"2"])


@in_loop
async def test_what_cannot_be_read_for_a_while_is_sent_later_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        second.set_limits(memory=0)
        await keep(first, "q", b"1", b"2")
        await stopped(first)
        fails = True

        def read(log: Log, position: int, length: int) -> bytes:
            if fails:
                raise OSError(errno.EIO, "Input/output error")
            return reads(log, position, length)

        reads = Log.read
        monkeypatch.setattr(Log, "read", read)
        first = await started(config_of(1, 2, tmp_path))
        second.set_limits(memory=1 << 30)
        await keep(first, "q", b"3")
        await asyncio.sleep(0.3)
        assert bodies(second, "q") == []
        fails = False
        await until(lambda: bodies(second, "q") == [b"1", b"2", b"3"])
        await until(lambda: kept(first) == [(2, 0, 0)])


@in_loop
async def test_any_home_crashes_at_any_time(tmp_path: Path) -> None:
    """Any home may crash at any time, here simulated by a start from a copy of its files."""
    random = Random(3)
    queues = "abc"
    expected: dict[str, list[bytes]] = {name: [] for name in queues}
    async with AsyncExitStack() as stack:
        brokers = [await started(config_of(home, 2, tmp_path)) for home in (1, 2)]
        stack.push_async_callback(lambda: asyncio.gather(*map(stopped, brokers)))
        for name in queues:
            await declare(brokers[1], name)
        for crash in range(8):
            for number in range(random.randrange(1, 30)):
                name = random.choice(queues)
                texts = [b"%d-%d-%d" % (crash, number, place) for place in range(random.randrange(1, 200))]
                await keep(brokers[0], name, *texts)
                expected[name] += texts
            await asyncio.sleep(random.random() / 50)
            place = random.randrange(2)
            await crashed(brokers, place, tmp_path)
        await until(lambda: kept(brokers[0]) == [(2, 0, 0)] or not kept(brokers[0]))
        assert {name: bodies(brokers[1], name) for name in queues} == expected


DYING = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}


async def die(broker: Broker, *texts: bytes, queue: str = "dying") -> None:
    """Dead-letter messages in a queue of this home; return once the commit is on disk."""
    with broker.turns.turn():
        dying = queue_of(broker, queue)
        dying.push([Message("", b"dying", PERSISTENT, text, persistent=True) for text in texts])
        dying.settle(dying.take(len(texts)), Outcome.REJECTED)
    await broker.committed()


@in_loop
async def test_dead_letters_are_there_once_and_in_order_whatever_breaks_and_crashes(tmp_path: Path) -> None:
    """Dead letters arrive once and in order, also through broken links and crashes of the homes."""
    random = Random(4)
    expected: list[bytes] = []
    async with AsyncExitStack() as stack:
        brokers = [await started(config_of(home, 2, tmp_path)) for home in (1, 2)]
        stack.push_async_callback(lambda: asyncio.gather(*map(stopped, brokers)))
        await declare(brokers[1], "letters")
        await declare(brokers[0], "dying", DYING)
        for number in range(120):
            texts = [b"%d-%d" % (number, place) for place in range(random.randrange(1, 100))]
            await die(brokers[0], *texts)
            expected += texts
            chance = random.random()
            if chance < 0.3 and (link := peers_of(brokers[random.randrange(2)]).links) is not None:
                for home in link.homes:
                    link.to(home).close()  # type: ignore[union-attr]
            elif chance < 0.35:
                await crashed(brokers, random.randrange(2), tmp_path)
        await until(lambda: kept(brokers[0]) == [(2, 0, 0)] or not kept(brokers[0]))
        queue = queue_of(brokers[1], "letters")
        found = queue.peek(1, queue.next_seq)
        assert [one.body for one in found] == expected
        headers = [Properties.parse(one.properties).headers for one in found]
        assert all(table is not None and "x-death" in str(table) for table in headers)
        assert queue_of(brokers[0], "dying").message_count == queue_of(brokers[0], "dying").dead_count == 0


@in_loop
async def test_dead_letters_wait_in_order_for_a_home_that_is_down_and_not_on_disk_if_transient(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "letters")
        await declare(first, "dying", DYING)
        await declare(first, "expiring", DYING | {"x-message-ttl": 1})
        await stopped(second)
        await until(lambda: not peers_of(first).links.homes)
        await die(first, b"1", b"2")
        with first.turns.turn():
            dying = queue_of(first, "dying")
            dying.push([Message("", b"dying", TRANSIENT, b"transient")])
            dying.settle(dying.take(1), Outcome.REJECTED)
        await die(first, b"3")
        await stopped(first)
        first = await started(config_of(1, 2, tmp_path))
        await die(first, b"4")
        with first.turns.turn():
            queue_of(first, "dying").push([Message("", b"dying", TRANSIENT, b"5")])
            queue_of(first, "dying").settle(queue_of(first, "dying").take(1), Outcome.REJECTED)
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert bodies(second, "letters") == [b"1", b"2", b"3", b"4", b"5"]
        assert first.memory.by_kind["staged"] == 0


@in_loop
async def test_what_expires_stays_while_the_outbox_of_its_letters_is_full(tmp_path: Path) -> None:
    async with homes(2, tmp_path, timing=Timing(outbox_octets=10_000)) as (first, second):
        await declare(second, "letters")
        await declare(first, "dying", DYING | {"x-message-ttl": 300})
        await declare(first, "near", {**DYING, "x-dead-letter-routing-key": "here", "x-message-ttl": 1})
        await declare(first, "here")
        await stopped(second)
        await until(lambda: not peers_of(first).links.homes)
        with first.turns.turn():
            texts = [Message("", b"dying", PERSISTENT, b"%d" % number, persistent=True) for number in range(5000)]
            queue_of(first, "dying").push(texts)
        await until(lambda: any(count for _, count, _ in kept(first)))
        with first.turns.turn():
            queue_of(first, "near").push([Message("", b"near", PERSISTENT, b"near", persistent=True)])
        await until(lambda: bodies(first, "here") == [b"near"])
        ((_, count, _),) = kept(first)
        assert 0 < count <= 3000
        second = await started(config_of(2, 2, tmp_path))
        await until(lambda: len(bodies(second, "letters")) == 5000 and kept(first) == [(2, 0, 0)])
        assert bodies(second, "letters") == [b"%d" % number for number in range(5000)]


@pytest.mark.slow
@in_loop
async def test_letters_that_must_arrive_reach_each_queue_once(tmp_path: Path) -> None:
    """At-least-once dead letters reach every queue once, also while a second queue refuses messages."""
    async with homes(2, tmp_path) as (first, second):
        arguments = {"x-dead-letter-exchange": "amq.fanout", "x-queue-type": "quorum", "x-overflow": "reject-publish"}
        await declare(first, "dying", arguments | {"x-dead-letter-strategy": "at-least-once"})
        await declare(second, "letters")
        await declare(first, "full", {"x-overflow": "reject-publish", "x-max-length": 1})
        for queue in ("letters", "full"):
            await bind(first, "amq.fanout", queue)
        await die(first, b"1", b"2")
        await until(lambda: len(bodies(second, "letters")) == 2)
        await asyncio.sleep(1.2)
        with first.turns.turn():
            full = queue_of(first, "full")
            full.settle(full.take(1), Outcome.ACKNOWLEDGED)
        await until(lambda: bodies(first, "full") == [b"2"])
        assert bodies(second, "letters") == [b"1", b"2"]


@in_loop
async def test_a_letter_that_may_be_refused_is_marked_when_it_is_sent_again(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "letters", {"x-overflow": "reject-publish", "x-max-length": 10})
        await declare(first, "dying", DYING)
        links = peers_of(first).links
        answered = links.handlers[records.ANSWER]

        def lost(link: Link, payload: memoryview) -> None:
            if bodies(second, "letters"):  # the answer to the dead letter, and no other answer is lost
                links.handlers[records.ANSWER] = answered
                link.close()
            else:
                answered(link, payload)

        links.handlers[records.ANSWER] = lost
        await die(first, b"1")
        await until(lambda: bodies(second, "letters") == [b"1", b"1"])
        assert [one.redelivered for one in queue_of(second, "letters").peek(1, 3)] == [False, True]
        await until(lambda: not queue_of(first, "dying").dead_count)


async def crashed(brokers: list[Broker], place: int, directory: Path) -> None:
    """Restart a home from a copy of its current files."""
    here, copy = directory / f"home-{place + 1}", directory / "copy"
    await peers_of(brokers[place]).lifecycle.stop()
    copied(here, copy)
    await stopped(brokers[place])
    shutil.rmtree(here)
    copy.rename(here)
    brokers[place] = await started(config_of(place + 1, 2, directory))


@in_loop
async def test_a_queue_that_is_deleted_takes_what_is_on_its_way(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        await declare(second, "q")
        await declare(second, "other")
        second.set_limits(memory=0)
        forwarding = await keep(first, "q", b"1")
        await keep(first, "other", b"2")
        await propose(first, DeleteQueue("/", "q", first.topology.vhosts["/"].declared["q"].id))
        assert forwarding.is_done
        assert [one[:2] for one in kept(first)] == [(2, 1)]
        second.set_limits(memory=1 << 30)
        await until(lambda: bodies(second, "other") == [b"2"])
        await until(lambda: kept(first) == [(2, 0, 0)])
        await declare(second, "q")
        await keep(first, "q", b"3")
        await until(lambda: bodies(second, "q") == [b"3"])


@in_loop
async def test_a_home_that_is_short_of_memory_takes_nothing_until_it_has_room(tmp_path: Path) -> None:
    async with homes(2, tmp_path, durable=False) as (first, second):
        await declare(second, "q")
        second.set_limits(memory=0)
        await keep(first, "q", b"1")
        await keep(first, "q", b"2")
        await asyncio.sleep(0.3)
        assert bodies(second, "q") == []
        assert [one[:2] for one in kept(first)] == [(2, 2)]
        second.set_limits(memory=1 << 30)
        await until(lambda: bodies(second, "q") == [b"1", b"2"])


@in_loop
async def test_large_messages_and_many_queues_go_in_slices(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        names = [f"q{number}" for number in range(50)]
        for name in names:
            await declare(second, name)
        for text in (b"small", bytes(1 << 19), b"end"):
            for name in names:
                await keep(first, name, text)
        await until(lambda: kept(first) == [(2, 0, 0)])
        for name in names:
            assert [len(body) for body in bodies(second, name)] == [5, 1 << 19, 3]


@in_loop
async def test_a_queue_whose_home_does_not_know_of_it_yet_is_waited_for(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as (first, second):
        links = peers_of(second).links
        hear, held = links.handlers[LOG], list[bytes]()
        links.handlers[LOG] = lambda link, payload: held.append(bytes(payload))
        with first.turns.turn():
            first.topology.propose(DeclareQueue(second.topology.define_queue("/", "q", True)))
        await until(lambda: "q" in first.topology.vhosts["/"].declared)
        await keep(first, "q", b"1")
        await keep(first, "q", b"2")
        await asyncio.sleep(0.3)
        assert [one[:2] for one in kept(first)] == [(2, 2)]
        links.handlers[LOG] = hear
        link = links.to(1)
        assert link is not None
        with second.turns.turn():
            for payload in held:
                hear(link, memoryview(payload))
        await until(lambda: kept(first) == [(2, 0, 0)])
        assert bodies(second, "q") == [b"1", b"2"]
