"""Consumer groups over streams: each group gets all messages, and resumes at its stored offset."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher, until
from tests.http.api import API

import jumpmq
from jumpmq.testing import JumpMQ

Unique = Callable[[str], str]
SOON: dict[str, Any] = {"x-rebalance-delay": 50}
FROM_THE_FIRST: dict[str, Any] = {"x-stream-offset": "first"}
FROM_25: dict[str, Any] = {"x-stream-offset": 25}
FIRST = SOON | FROM_THE_FIRST
STREAM = {"x-queue-type": "stream"}


class Reader:
    """A member of a group on a stream of numbered messages.

    Attributes:
        got: delivery tag, number and redelivered flag of each message.
    """

    def __init__(self, port: int, source: str, group: str, *, prefetch: int = 100, **arguments: Any) -> None:
        self.got: list[tuple[int, int, bool]] = []
        self.offsets: list[int] = []
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(port=port))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.basic_consume(source, self._on_delivery, arguments={"x-consumer-group": group} | arguments)

    def _on_delivery(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((method.delivery_tag, int(body), method.redelivered))
        self.offsets.append(properties.headers["x-stream-offset"])

    @property
    def numbers(self) -> list[int]:
        return [number for _, number, _ in self.got]

    def wait(self, count: int) -> list[int]:
        """Wait for so many messages; return the numbers of all."""
        until(lambda: len(self.got) >= count or self.connection.process_data_events(0.01))
        assert len(self.got) == count
        return self.numbers

    def take(self, count: int) -> list[int]:
        """Wait for so many messages, and acknowledge them."""
        found = self.wait(count)
        self.channel.basic_ack(self.got[-1][0], multiple=True)
        return found

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def channel(broker: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A channel for declarations and publishes."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def stream(channel: BlockingChannel, unique: Unique) -> str:
    name = unique("events")
    channel.queue_declare(name, durable=True, arguments=STREAM)
    channel.confirm_delivery()
    return name


def publish(channel: BlockingChannel, stream: str, first: int, end: int, size: int = 0) -> None:
    for number in range(first, end):
        channel.basic_publish("", stream, b"%d".ljust(size) % number)


def offsets(api: API, stream: str) -> dict[str, dict[str, Any]]:
    """Return the group offsets of a stream, as the API shows them."""
    return {one["group"]: one for one in api.get("group-offsets", "/") if one["queue"] == stream}


@pytest.fixture
def api(broker: jumpmq.RunningBroker) -> API:
    return API(broker.http_url)


def test_each_group_sees_everything_from_where_it_was(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 10)
    billing = Reader(broker.port, stream, "billing", **FROM_THE_FIRST)
    late = Reader(broker.port, stream, "late")  # begins with the next message
    publish(channel, stream, 10, 20)
    assert billing.take(20) == list(range(20))
    assert billing.offsets == list(range(20))
    assert late.take(10) == list(range(10, 20))
    for one in (billing, late):
        one.close()
    publish(channel, stream, 20, 30)
    again = Reader(broker.port, stream, "billing", **FROM_THE_FIRST)
    assert again.take(10) == list(range(20, 30))
    plain = Reader(broker.port, stream, "plain", **FROM_25)
    assert plain.take(5) == list(range(25, 30))
    assert not any(redelivered for one in (billing, late, again, plain) for _, _, redelivered in one.got)
    for one in (again, plain):
        one.close()


def test_what_is_put_back_comes_again_and_what_is_rejected_does_not(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    publish(channel, stream, 0, 8)
    reader = Reader(broker.port, stream, "g", prefetch=4, **FIRST)
    assert reader.wait(4) == [0, 1, 2, 3]
    reader.channel.basic_nack(3, requeue=True)  # of number 2
    assert reader.wait(5)[4:] == [2]
    reader.channel.basic_nack(0, multiple=True, requeue=True)
    assert reader.wait(9)[5:] == [0, 1, 2, 3]
    reader.channel.basic_reject(6, requeue=False)
    reader.channel.basic_ack(7)
    assert reader.wait(11)[9:] == [4, 5]
    assert [redelivered for _, _, redelivered in reader.got] == [False] * 4 + [True] * 5 + [False] * 2
    until(lambda: offsets(api, stream)["g"]["offset"] == 2)
    reader.close()
    other = Reader(broker.port, stream, "g")
    assert other.wait(6) == [2, 3, 4, 5, 6, 7]
    assert [redelivered for _, _, redelivered in other.got] == [True] * 4 + [False] * 2
    other.close()


def test_what_was_settled_beyond_the_offset_does_not_come_again(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    publish(channel, stream, 0, 6)
    reader = Reader(broker.port, stream, "g", **FIRST)
    reader.wait(6)
    for tag in (2, 4, 6):
        reader.channel.basic_ack(tag)
    until(lambda: offsets(api, stream)["g"]["lag"] == 3)
    reader.close()
    other = Reader(broker.port, stream, "g")
    assert other.take(3) == [0, 2, 4]
    until(lambda: offsets(api, stream)["g"]["offset"] == 6)
    other.close()


@pytest.fixture
def exchange(channel: BlockingChannel, unique: Unique) -> str:
    """A consistent hash exchange with four streams."""
    name = unique("orders")
    channel.exchange_declare(name, "x-consistent-hash", durable=True)
    for number in range(4):
        add(channel, name, number)
    return name


def add(channel: BlockingChannel, exchange: str, number: int) -> None:
    """Bind one more stream to an exchange."""
    channel.queue_declare(f"{exchange}.{number}", durable=True, arguments=STREAM)
    channel.queue_bind(f"{exchange}.{number}", exchange, "1")


def test_members_share_the_streams_of_an_exchange(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, exchange: str
) -> None:
    """Each key is at one member at a time, through joins, leaves and broken connections; a second group gets all."""
    checkers = [Checker(), Checker()]
    publisher = Publisher(broker.port, exchange, checkers[0])
    members = [
        Member(broker.port, exchange, "a", "a1", checkers[0], arguments=FIRST),
        Member(broker.port, exchange, "a", "a2", checkers[0], arguments=FIRST),
        Member(broker.port, exchange, "b", "b1", checkers[1], arguments=FIRST),
    ]

    def settled() -> bool:
        checkers[1].published.update(checkers[0].published)
        return not any(checker.left for checker in checkers)

    publisher.publish(40, 3)
    until(settled, *members, settle=True)
    assert len(members[0].queues) == len(members[1].queues) == 2
    members.append(Member(broker.port, exchange, "a", "a3", checkers[0], arguments=SOON))
    publisher.publish(40, 3)
    until(settled, *members, settle=True)
    publisher.publish(40, 3)
    until(lambda: members[0].held and members[3].held, *members)
    members.pop(0).kill()
    until(settled, *members, settle=True)
    for member in members:
        member.close()
    publisher.close()
    for checker in checkers:
        checker.check()


def test_a_stream_passes_on_when_its_messages_are_settled(
    broker: jumpmq.RunningBroker, exchange: str, api: API
) -> None:
    checker = Checker()
    publisher = Publisher(broker.port, exchange, checker)
    first = Member(broker.port, exchange, "g", "a", checker, prefetch=200, arguments=FIRST)
    publisher.publish(40, 2)
    until(lambda: len(first.held) == 80, first)
    second = Member(broker.port, exchange, "g", "b", checker, prefetch=200, arguments=SOON)

    def draining() -> int:
        (group,) = [one for one in api.get("consumer-groups", "/") if one["source"] == exchange]
        return sum(one["draining"] is not None for one in group["units"])

    until(lambda: draining() == 2, first, second)
    publisher.publish(40, 1)
    until(lambda: len(first.held) > 80, first, second)
    assert not second.held
    until(lambda: not checker.left, first, second, settle=True)
    assert len(second.queues) == 2
    for one in (first, second, publisher):
        one.close()
    checker.check()


def test_a_stream_that_is_bound_later_is_read_from_its_first_message(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, exchange: str
) -> None:
    """A group reads a later bound stream from its first message, with members present or not."""
    checker = Checker()
    publisher = Publisher(broker.port, exchange, checker)
    with Member(broker.port, exchange, "g", "a", checker, arguments=SOON) as member:
        publisher.publish(20, 1)
        until(lambda: not checker.left, member, settle=True)
        add(channel, exchange, 4)
        publisher.publish(100, 1)
        until(lambda: not checker.left, member, settle=True)
        assert f"{exchange}.4" in member.queues
    add(channel, exchange, 5)
    publisher.publish(100, 1)
    with Member(broker.port, exchange, "g", "b", checker, arguments=SOON) as member:
        until(lambda: not checker.left, member, settle=True)
        assert f"{exchange}.5" in member.queues
    publisher.close()
    assert not checker.left


def test_a_sharded_exchange_of_streams_grows(broker: jumpmq.RunningBroker, api: API, unique: Unique) -> None:
    exchange = unique("sharded")

    def shard(count: int) -> None:
        policy = {"pattern": f"^{exchange}$", "definition": {"shards-per-node": count, "queue-type": "stream"}}
        assert api.request("PUT", "policies", "/", exchange, json=policy).ok

    shard(2)
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        connection.channel().exchange_declare(exchange, "x-modulus-hash", durable=True)
    checker = Checker()
    publisher = Publisher(broker.port, exchange, checker)
    with Member(broker.port, exchange, "g", "a", checker, arguments=SOON) as member:
        publisher.publish(40, 2)
        shard(4)
        publisher.publish(40, 2)
        until(lambda: not checker.left, member, settle=True)
        assert len(member.queues) == 4
    publisher.close()


def test_a_member_that_settles_nothing_is_cancelled_for_another(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    checker = Checker()
    publisher = Publisher(broker.port, "", checker, stream)
    publisher.publish(5, 2)
    named = {"x-handover-timeout": 200, "x-group-member": "one"}
    hung = Member(broker.port, stream, "g", "hung", checker, prefetch=5, arguments=FIRST | named)
    until(lambda: len(hung.held) == 5, hung)
    checker.gone("hung")
    with Member(broker.port, stream, "g", "b", checker, arguments=SOON | {"x-group-member": "one"}) as other:
        until(lambda: not checker.left, other, settle=True)
        hung.channel.basic_ack(0, multiple=True)
        until(lambda: hung.cancelled, hung)
        assert offsets(api, stream)["g"]["lag"] == 0
    hung.close()
    publisher.close()
    checker.check()


def test_a_stream_that_is_unbound_stays_until_the_group_has_settled_it(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, exchange: str, api: API
) -> None:
    checker = Checker()
    publisher = Publisher(broker.port, exchange, checker)
    with Member(broker.port, exchange, "g", "a", checker, prefetch=1, arguments=FIRST) as member:
        publisher.publish(40, 1)
        until(lambda: member.held, member)
        channel.queue_unbind(f"{exchange}.0", exchange, "1")

        def units() -> list[str]:
            (group,) = [one for one in api.get("consumer-groups", "/") if one["source"] == exchange]
            return [one["queue"] for one in group["units"] if one["unbound"] or one["queue"] != f"{exchange}.0"]

        assert len(units()) in (3, 4)  # the member is notified a moment later
        until(lambda: not checker.left, member, settle=True)
        until(lambda: f"{exchange}.0" not in units(), member)
    publisher.close()
    checker.check()


def test_retention_beyond_the_offset_jumps_and_is_counted(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, unique: Unique, api: API
) -> None:
    stream = unique("short")
    arguments = {"x-max-length-bytes": 50_000, "x-stream-max-segment-size-bytes": 20_000}
    channel.queue_declare(stream, durable=True, arguments=STREAM | arguments)
    channel.confirm_delivery()
    publish(channel, stream, 0, 5, size=3000)
    reader = Reader(broker.port, stream, "g", prefetch=3, **FIRST)
    reader.wait(3)
    reader.channel.basic_ack(1)
    reader.wait(4)
    publish(channel, stream, 5, 100, size=3000)
    shown = offsets(api, stream)["g"]
    assert (shown["offset"], shown["end"], shown["unacknowledged"]) == (1, 100, 3)
    assert shown["skipped"] > 60
    reader.channel.basic_ack(4, multiple=True)
    first = shown["skipped"] + 4
    assert reader.wait(7)[4:] == [first, first + 1, first + 2]
    assert offsets(api, stream)["g"]["skipped"] == shown["skipped"]
    reader.close()


def test_what_is_refused(broker: jumpmq.RunningBroker, channel: BlockingChannel, exchange: str, unique: Unique) -> None:
    stream, plain = f"{exchange}.0", unique("plain")
    channel.queue_declare(plain)
    for source, prefetch, arguments, reason in (
        (stream, 0, {}, "consumer prefetch count is not set for stream queue"),
        (exchange, 0, {}, "consumer prefetch count is not set for stream queue"),
        (stream, 1, {"x-stream-filter": "a"}, "consumer group 'g' has no filters"),
        (stream, 1, {"x-stream-offset": "middle"}, "invalid_stream_offset_arg"),
        (plain, 1, {"x-stream-offset": "first"}, "invalid arg 'x-stream-offset'"),
    ):
        with pytest.raises(ChannelClosedByBroker, match=reason) as refused:
            Reader(broker.port, source, "g", prefetch=prefetch, **arguments)
        assert refused.value.reply_code == 406
    whole = Reader(broker.port, exchange, "g")
    with pytest.raises(ChannelClosedByBroker, match=f"of consumer group 'g' of exchange '{exchange}'") as refused:
        Reader(broker.port, stream, "g")
    assert refused.value.reply_code == 405
    for one in (Reader(broker.port, stream, "other"), whole):
        one.close()
    Reader(broker.port, stream, "g").close()


def test_a_member_needs_the_right_to_read(broker: jumpmq.RunningBroker, stream: str, api: API) -> None:
    api.request("PUT", "users", "writer", json={"password": "writer", "tags": ""})
    api.request("PUT", "permissions", "/", "writer", json={"configure": "", "write": ".*", "read": "^none$"})
    with pytest.raises(ChannelClosedByBroker) as refused:
        Member(broker.port, stream, "g", "a", Checker(), user="writer")
    assert refused.value.reply_code == 403
    assert not offsets(api, stream)


def test_the_offsets_of_a_stream_go_with_it(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    publish(channel, stream, 0, 3)
    reader = Reader(broker.port, stream, "g", **FIRST)
    reader.take(3)
    channel.queue_delete(stream)
    assert not offsets(api, stream)
    reader.close()
    channel.queue_declare(stream, durable=True, arguments=STREAM)
    publish(channel, stream, 10, 12)
    other = Reader(broker.port, stream, "g", **FIRST)
    assert other.take(2) == [10, 11]
    assert not any(redelivered for _, _, redelivered in other.got)
    other.close()


def test_it_is_told_why_a_group_gets_nothing(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    publish(channel, stream, 0, 3)
    reader = Reader(broker.port, stream, "g", prefetch=1, **FIRST, **{"x-group-member": "one"})
    reader.wait(1)
    reason = api.get("queues", "/", stream, "explain")["reason"]
    assert reason.startswith(
        "member 'one' of consumer group 'g' has no room: the member holds 1 messages with a prefetch of 1"
    )
    reader.close()


def test_an_offset_that_is_set_while_members_hold_messages(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str, api: API
) -> None:
    """After setting an offset, members' unsettled deliveries no longer count, and the messages come again."""
    publish(channel, stream, 0, 10)
    reader = Reader(broker.port, stream, "g", prefetch=10, **FIRST)
    reader.wait(10)
    reader.channel.basic_ack(5, multiple=True)
    until(lambda: offsets(api, stream)["g"]["offset"] == 5)
    assert api.request("DELETE", "group-offsets", "/", stream, "g").status_code == 400
    assert api.request("PUT", "group-offsets", "/", stream, "g", json={"offset": 7}).status_code == 204
    assert reader.wait(13)[10:] == [7, 8, 9]
    assert all(redelivered for _, _, redelivered in reader.got[10:])
    reader.channel.basic_ack(10, multiple=True)  # of its earlier deliveries
    assert api.request("PUT", "group-offsets", "/", stream, "g", json={"offset": "first"}).status_code == 204
    assert reader.wait(20)[13:] == [0, 1, 2, 3, 4, 5, 6]
    reader.channel.basic_ack(0, multiple=True)
    assert reader.wait(23)[20:] == [7, 8, 9]
    reader.channel.basic_ack(0, multiple=True)
    until(lambda: offsets(api, stream)["g"]["lag"] == 0)
    reader.close()


@pytest.mark.slow
def test_a_clean_restart_delivers_nothing_again(tmp_path: Path) -> None:
    with JumpMQ(data_dir=tmp_path) as broker:
        _declare(broker.port, "s")
        reader = Reader(broker.port, "s", "g", prefetch=3, **FIRST)
        _publish(broker.port, "s", 0, 10)
        reader.wait(3)
        reader.channel.basic_ack(2, multiple=True)
        reader.wait(5)
        broker.stop()
        broker.start()
        other = Reader(broker.port, "s", "g")
        assert other.wait(8) == list(range(2, 10))
        assert [redelivered for _, _, redelivered in other.got] == [True] * 3 + [False] * 5
        other.close()


def test_a_group_begins_where_it_did_though_the_broker_is_killed_at_once(tmp_path: Path) -> None:
    with JumpMQ(data_dir=tmp_path) as broker:
        _declare(broker.port, "s")
        _publish(broker.port, "s", 0, 5)
        Reader(broker.port, "s", "g")
        _publish(broker.port, "s", 5, 10)
        broker.kill()
        broker.start()
        _publish(broker.port, "s", 10, 12)
        reader = Reader(broker.port, "s", "g")
        assert reader.take(7) == list(range(5, 12))
        reader.close()


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path: Path) -> None:
    """Kills lose no message; redeliveries are marked, and settlements are eventually kept."""
    checker = Checker()
    with JumpMQ(data_dir=tmp_path) as broker:
        with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
            channel = connection.channel()
            channel.exchange_declare("orders", "x-consistent-hash", durable=True)
            for number in range(3):
                add(channel, "orders", number)
        for number in range(4):
            members = [
                Member(broker.port, "orders", "g", f"{name}{number}", checker, prefetch=30, arguments=FIRST)
                for name in "ab"
            ]
            publisher = Publisher(broker.port, "orders", checker)
            publisher.channel.confirm_delivery()
            publisher.publish(20, 10)
            until(lambda: checker.left < 100, *members, settle=True)
            until(partial(_any_held, members, checker), *members)
            if number % 2:
                publisher.publish(20, 3)
            broker.kill()
            for member in members:
                checker.gone(member.name)
            broker.start()
            api = API(f"http://127.0.0.1:{broker.http_port}")
            assert sum(one["lag"] for one in api.get("group-offsets")) >= checker.left
        with Member(broker.port, "orders", "g", "last", checker, arguments=SOON) as member:
            until(lambda: not checker.left, member, settle=True)
            until(lambda: not any(one["lag"] for one in api.get("group-offsets")), member, settle=True)
    checker.check()


def test_a_written_offset_survives_a_kill(tmp_path: Path) -> None:
    with JumpMQ(data_dir=tmp_path) as broker:
        _declare(broker.port, "s")
        _publish(broker.port, "s", 0, 100)
        reader = Reader(broker.port, "s", "g", **FIRST)
        reader.take(100)
        api = API(f"http://127.0.0.1:{broker.http_port}")
        until(lambda: offsets(api, "s")["g"]["lag"] == 0)
        # Later messages go to disk with the offset, and so show the offset's presence.
        assert api.request("PUT", "group-offsets", "/", "s", "other", json={"offset": 50}).status_code == 201
        broker.kill()
        broker.start()
        api = API(f"http://127.0.0.1:{broker.http_port}")
        assert {group: one["offset"] for group, one in offsets(api, "s").items()} == {"g": 100, "other": 50}


@pytest.mark.slow
def test_a_stream_that_has_as_many_groups_as_it_may(
    broker: jumpmq.RunningBroker, channel: BlockingChannel, stream: str
) -> None:
    api = API(f"http://127.0.0.1:{broker.http_port}")
    other, exchange = f"{stream}-other", f"{stream}-exchange"
    channel.queue_declare(other, durable=True, arguments=STREAM)
    channel.exchange_declare(exchange, "x-consistent-hash", auto_delete=True)
    channel.queue_bind(other, exchange, "1")
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection:
        member = connection.channel()
        member.basic_qos(prefetch_count=1)
        member.basic_consume(exchange, lambda *_: None, arguments=SOON | {"x-consumer-group": "begun"})
        for number in range(1000):
            assert api.request("PUT", "group-offsets", "/", stream, f"g{number}", json={"offset": 0}).status_code == 201
        text = f"1000 consumer groups have an offset in stream '{stream}' in vhost '/': delete those that are not used"
        assert api.request("PUT", "group-offsets", "/", stream, "late", json={"offset": 0}).json()["reason"] == text
        with pytest.raises(ChannelClosedByBroker, match=re.escape(f"PRECONDITION_FAILED - {text}")):
            Reader(broker.port, stream, "late")
        Reader(broker.port, stream, "g7").close()
        channel.queue_bind(stream, exchange, "1")
        until(lambda: text in str(api.get("consumer-groups")[0]["refused"]))
        with pytest.raises(ChannelClosedByBroker, match=re.escape(text)):
            Reader(broker.port, exchange, "late")
        assert api.request("DELETE", "group-offsets", "/", stream, "g0").status_code == 204
        until(lambda: not api.get("consumer-groups")[0]["refused"])
    channel.queue_delete(stream)
    channel.queue_delete(other)


def _any_held(members: list[Member], checker: Checker) -> bool:
    return not checker.left or any(one.held for one in members)


def _declare(port: int, stream: str) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        connection.channel().queue_declare(stream, durable=True, arguments=STREAM)


def _publish(port: int, stream: str, first: int, end: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(port=port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, stream, first, end)
