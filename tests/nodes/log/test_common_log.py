"""Several homes with a common log of definitions: answered changes are known everywhere, also after crashes."""

import asyncio
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker
from tests.nodes.homes import config_of, definitions_of, homes, in_loop, propose, started, stopped, until
from tests.topology.state import state_of

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.broker import Broker, BrokerError
from jumpmq.broker.upkeep.slices import decided
from jumpmq.http.resources.import_definitions import import_definitions
from jumpmq.nodes.log import log_link
from jumpmq.nodes.log.first import First
from jumpmq.nodes.timing import Timing
from jumpmq.topology import (
    Arguments,
    Bind,
    Binding,
    ChangePrincipal,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    ExchangeDefinition,
    Pending,
    SetPolicy,
)


def declaration(broker: Broker, name: str, **settings: object) -> DeclareQueue:
    return DeclareQueue(broker.topology.define_queue("/", name, durable=True, **settings))  # type: ignore[arg-type]


def kept_entries(broker: Broker) -> list[dict[str, Any]]:
    """Return the entries of the log kept by the first home for remote homes."""
    assert isinstance(broker.topology.log, First)
    return broker.topology.log.kept


def ring(broker: Broker, queue: str, exchange: str = "ring") -> Bind:
    return Bind("/", Binding(exchange, "queue", queue, b"3", Arguments()))


@in_loop
async def test_what_is_answered_is_known_everywhere() -> None:
    async with homes(3) as brokers:
        exchange = ExchangeDefinition("/", "ring", "x-consistent-hash", durable=True)
        await propose(brokers[2], DeclareExchange(exchange))
        for number in range(12):
            broker = brokers[number % 3]
            await propose(broker, declaration(broker, f"q{number}"))
            assert all(f"q{number}" in definitions_of(one)["/"] for one in brokers)
            await propose(brokers[(number + 1) % 3], ring(broker, f"q{number}"))
        assert state_of(brokers[0].topology) == state_of(brokers[1].topology) == state_of(brokers[2].topology)
        for place, broker in enumerate(brokers):  # the contents are at home only
            here = [name for name, one in broker.topology.vhosts["/"].declared.items() if one.contents is not None]
            assert here == [f"q{number}" for number in range(12) if number % 3 == place]


@in_loop
async def test_a_refusal_reaches_who_asked_and_nobody_else() -> None:
    async with homes(2) as brokers:
        await propose(brokers[0], declaration(brokers[0], "q"))
        other = brokers[1].topology.define_queue("/", "q", durable=False)
        with pytest.raises(PreconditionFailed, match="inequivalent arg 'durable' for queue 'q'"):
            await propose(brokers[1], DeclareQueue(other))
        assert state_of(brokers[0].topology) == state_of(brokers[1].topology)


@in_loop
async def test_many_ask_at_once_and_the_order_is_one() -> None:
    async with homes(3, durable=False) as brokers:
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "ring", "x-consistent-hash")))

        async def make(place: int) -> None:
            for number in range(30):
                await propose(brokers[place], declaration(brokers[place], f"q{place}-{number}"))
                await propose(brokers[place], ring(brokers[place], f"q{place}-{number}"))

        await asyncio.gather(*(make(place) for place in range(3)))
        states = [state_of(broker.topology) for broker in brokers]
        assert states[0] == states[1] == states[2]
        assert len(states[0]["vhosts"]["/"]["queues"]) == 90


@in_loop
async def test_shards_are_made_by_a_policy_and_alike(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await propose(brokers[1], SetPolicy("/", "p", "^s", {"shards-per-node": 4}, apply_to="exchanges"))
        await propose(brokers[1], DeclareExchange(ExchangeDefinition("/", "s", "x-modulus-hash", durable=True)))
        assert state_of(brokers[0].topology) == state_of(brokers[1].topology)
        assert len(definitions_of(brokers[0])["/"]) == 4


@in_loop
async def test_a_home_that_was_away_replays_what_it_missed(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await propose(brokers[2], declaration(brokers[2], "before"))
        await stopped(brokers[2])
        for number in range(5):
            await propose(brokers[1], declaration(brokers[1], f"meanwhile-{number}"))
        again = await started(config_of(3, 3, tmp_path))
        assert set(definitions_of(again)["/"]) == {"before", *(f"meanwhile-{number}" for number in range(5))}
        assert state_of(again.topology) == state_of(brokers[0].topology)
        await propose(again, declaration(again, "after"))
        assert "after" in definitions_of(brokers[1])["/"]


@in_loop
async def test_transient_queues_end_with_their_home_only(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        for broker in brokers[1:]:
            name = f"transient-{broker.config.home}"
            await propose(broker, DeclareQueue(broker.topology.define_queue("/", name)))
        await stopped(brokers[1])
        again = await started(config_of(2, 3, tmp_path))
        assert list(definitions_of(brokers[0])["/"]) == ["transient-3"]
        assert state_of(again.topology) == state_of(brokers[2].topology)


def connected(broker: Broker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))


def declare_there(broker: Broker, name: str, connection: pika.BlockingConnection | None = None) -> None:
    connection = connection or connected(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "before", b"served all the time", mandatory=True)
    channel.queue_declare(name, durable=True)
    connection.close()


@in_loop
async def test_while_the_first_home_is_away_clients_are_told_that_definitions_stand_still(tmp_path: Path) -> None:
    async with homes(2, tmp_path, timing=Timing(log_patience=0.3)) as brokers:
        second = brokers[1]
        await propose(second, declaration(second, "before"))
        connections = [await asyncio.to_thread(connected, second) for _ in range(2)]  # which takes time
        await stopped(brokers[0])
        for name, connection in zip(("waits", "is-refused-at-once"), connections, strict=True):
            with pytest.raises(ConnectionClosedByBroker, match="metadata store operation timed out") as closed:
                await asyncio.to_thread(declare_there, second, name, connection)
            assert closed.value.reply_code == 541
        with second.turns.turn():  # no client waits for the broker's own changes
            pending = second.topology.propose(declaration(second, "by-the-broker"))
        first = await started(config_of(1, 2, tmp_path))
        await until(lambda: pending.decided)
        await asyncio.to_thread(declare_there, second, "after")
        assert set(definitions_of(first)["/"]) == {"before", "waits", "by-the-broker", "after"}
        assert state_of(first.topology) == state_of(second.topology)


@in_loop
async def test_the_first_home_starts_again_and_goes_on(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await propose(brokers[1], declaration(brokers[1], "before"))
        await stopped(brokers[0])
        with brokers[1].turns.turn():  # waits for the first home
            pending = brokers[1].topology.propose(declaration(brokers[1], "meanwhile"))
        first = await started(config_of(1, 3, tmp_path))
        known = asyncio.Event()
        pending.then(known.set)
        async with asyncio.timeout(20):
            await known.wait()
        pending.result()
        await propose(brokers[2], declaration(brokers[2], "after"))
        for broker in (first, brokers[1], brokers[2]):
            assert set(definitions_of(broker)["/"]) == {"before", "meanwhile", "after"}
        assert state_of(first.topology) == state_of(brokers[1].topology) == state_of(brokers[2].topology)


@in_loop
async def test_entries_that_all_have_are_let_go(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        for number in range(20):
            await propose(brokers[1], declaration(brokers[1], f"q{number}"))
        async with asyncio.timeout(20):
            while len(kept_entries(brokers[0])) > 2:
                await brokers[0].committed()


@in_loop
async def test_fewer_homes_are_refused(tmp_path: Path) -> None:
    async with homes(3, tmp_path):
        pass
    with pytest.raises(BrokerError, match="one of 3 homes: serve it with --workers 3 or more, not 2"):
        await started(config_of(1, 2, tmp_path))
    with pytest.raises(BrokerError, match="one of 3 homes: serve it with --workers 3 or more"):
        await started(config_of(1, 1, tmp_path))


@in_loop
async def test_a_home_of_another_broker_is_refused(tmp_path: Path) -> None:
    async with homes(2, tmp_path / "one"), homes(2, tmp_path / "two"):
        pass
    (tmp_path / "one" / "home-2").rename(tmp_path / "moved")
    (tmp_path / "two" / "home-2").rename(tmp_path / "one" / "home-2")
    await started(config_of(1, 2, tmp_path / "one"))
    with pytest.raises(BrokerError, match="belongs to another broker"):
        await started(config_of(2, 2, tmp_path / "one"))


@in_loop
async def test_a_stranger_is_no_home(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        socket = tmp_path / "links" / "home-1.sock"
        assert socket.stat().st_mode & 0o777 == 0o600
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        assert (socket.parent / "secret").stat().st_mode & 0o777 == 0o600
        for said in (
            b'\0\0\0\x2a\0{"home": 2, "boot": "b", "secret": "guess"}',
            b"\0\0\0\x02\x02{}",
            b"\xff\xff\xff\xff\0",
            b"\0\0\0\x03\0\xff\xff\xff",
        ):
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(said)
            async with asyncio.timeout(5):
                while await reader.read(1000):
                    pass
            writer.close()
        await propose(brokers[1], declaration(brokers[1], "q"))
        assert "q" in definitions_of(brokers[0])["/"]


@in_loop
async def test_no_queue_is_placed_at_a_home_that_has_not_ended_what_its_last_process_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No queue is placed at a home before the queues of its last process have ended."""
    async with homes(2, tmp_path, queue_leader_locator="balanced") as (first, second):
        await propose(first, declaration(first, "r"))
        await stopped(second)
        follow = log_link.FollowedLog.follow
        reached, goes_on = asyncio.Event(), asyncio.Event()

        async def waiting(self: log_link.FollowedLog, *arguments: Any) -> None:
            await follow(self, *arguments)
            reached.set()
            await goes_on.wait()

        monkeypatch.setattr(log_link.FollowedLog, "follow", waiting)
        starting = asyncio.create_task(started(config_of(2, 2, tmp_path, queue_leader_locator="balanced")))
        await reached.wait()
        await until(lambda: 2 in first.running_homes)
        for name in ("q", "s"):
            await propose(first, DeclareQueue(first.topology.define_queue("/", name)))
        goes_on.set()
        again = await starting
        assert all(definitions_of(broker)["/"].keys() == {"q", "r", "s"} for broker in (first, again))


@in_loop
async def test_queues_are_where_the_fewest_are_unless_their_locator_says_otherwise() -> None:
    async with homes(3, durable=False, queue_leader_locator="balanced") as brokers:

        async def declare(name: str, place: int = 2, **settings: object) -> int:
            await propose(brokers[place], declaration(brokers[place], name, **settings))
            found = [one.topology.vhosts["/"].declared[name].definition.home for one in brokers if one.listeners]
            assert len(set(found)) == 1
            return found[0]

        assert [await declare(f"q{number}") for number in range(6)] == [1, 2, 3, 1, 2, 3]
        assert await declare("mine", exclusive=True, owner="somebody") == 3
        local = Arguments.of({"x-queue-master-locator": "client-local"})
        assert await declare("local", place=1, arguments=local) == 2
        assert await declare("q0") == 1  # a queue declared again stays
        assert await declare("next") == 1
        await propose(brokers[0], DeleteQueue("/", "q1", brokers[0].topology.vhosts["/"].declared["q1"].id))
        await stopped(brokers[2])
        assert [await declare(f"r{number}", place=0) for number in range(3)] == [2, 1, 2]
        assert state_of(brokers[0].topology) == state_of(brokers[1].topology)


@in_loop
async def test_an_import_lets_others_be_served_between_changes_that_are_decided_together() -> None:
    async with homes(2, durable=False) as (first, second):
        entries = [{"vhost": "/", "name": f"q{number}", "durable": True} for number in range(50)]
        propose, steps, most = first.topology.propose, [0], 0

        def counted(*arguments: Any, **words: Any) -> Pending:
            steps[-1] += 1
            return propose(*arguments, **words)

        first.topology.propose = counted  # type: ignore[method-assign]
        for step in import_definitions(first.topology, ChangePrincipal("guest"), {"queues": entries}, None):
            steps.append(0)
            if step is not None:
                most = max(most, sum(steps))
                await decided(step)
        assert max(steps) == 1
        assert most == 50  # all before the first answer was waited for
        assert len(second.topology.vhosts["/"].declared) == 50
