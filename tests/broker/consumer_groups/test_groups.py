"""Consumer groups over whole queues, as seen by clients."""

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

import pika
import pytest
import requests
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher, until
from tests.broker.consumer_groups.operating import SOON, Api, jumpmqctl

import jumpmq
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.fields import Field
from jumpmq.broker.channel.group_consumer import GroupArguments

Unique = Callable[[str], str]


@pytest.fixture
def checker() -> Checker:
    return Checker()


@pytest.fixture
def channel(broker: jumpmq.RunningBroker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """A channel for declarations."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def exchange(channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique) -> str:
    """A consistent hash exchange with four queues."""
    name = unique("orders")
    channel.exchange_declare(name, "x-consistent-hash", durable=True)
    for number in range(4):
        channel.queue_declare(f"{name}.{number}", durable=True)
        channel.queue_bind(f"{name}.{number}", name, "1")
    return name


@pytest.fixture
def publisher(broker: jumpmq.RunningBroker, exchange: str, checker: Checker) -> Iterator[Publisher]:
    publisher = Publisher(broker.port, exchange, checker)
    yield publisher
    publisher.close()


def test_members_share_the_queues_and_a_join_moves_two(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    publisher.publish(40, 5)
    with Member(broker.port, exchange, "g", "a", checker, arguments=SOON) as first:
        until(lambda: not checker.left, first, settle=True)
        assert len(first.queues) == 4
        with Member(broker.port, exchange, "g", "b", checker, arguments=SOON) as second:
            while len(second.queues) < 2:
                publisher.publish(40, 1)
                until(lambda: not checker.left, first, second, settle=True)
            first.queues.clear()
            publisher.publish(40, 1)
            until(lambda: not checker.left, first, second, settle=True)
            assert len(second.queues) == len(first.queues) == 2
            assert not first.queues & second.queues
        publisher.publish(40, 2)
        until(lambda: not checker.left, first, settle=True)
        assert len(first.queues) == 4
    checker.check()


def test_a_queue_passes_on_when_its_messages_are_settled(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    """The old owner keeps unsettled deliveries; meanwhile the new owner gets no message of the queue."""
    publisher.publish(40, 2)
    with Member(broker.port, exchange, "g", "a", checker, prefetch=0, arguments=SOON) as first:
        until(lambda: len(first.held) == 80, first)
        with Member(broker.port, exchange, "g", "b", checker, prefetch=0, arguments=SOON) as second:
            came = 40
            while came > 30:
                before = len(first.held)
                publisher.publish(40, 1)
                for _ in range(10):
                    first.read(0.005)
                    second.read(0.005)
                came = len(first.held) - before
            assert not second.held
            first.acknowledge()
            until(lambda: len(first.held) + len(second.held) == checker.left, first, second)
            assert len(second.queues) == 2
            first.acknowledge()
            second.acknowledge()
    checker.check()


@pytest.mark.parametrize("end", ["close", "kill", "cancel"])
def test_what_a_member_leaves_comes_to_another_in_order(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker, end: str
) -> None:
    publisher.publish(40, 3)
    with Member(broker.port, exchange, "g", "a", checker, prefetch=7, arguments=SOON) as first:
        second = Member(broker.port, exchange, "g", "b", checker, prefetch=7, arguments=SOON)
        until(lambda: len(first.held) == len(second.held) == 7, first, second)
        first.acknowledge()
        if end == "cancel":
            second.channel.basic_cancel(second.tag)
            for _ in range(20):
                first.read(0.005)
                first.acknowledge()
            second.acknowledge()
        else:
            getattr(second, end)()
        until(lambda: not checker.left, first, settle=True)
        second.close()
    checker.check()


def test_the_prefetch_is_one_over_all_queues_and_each_has_its_turn(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    publisher.publish(40, 5)
    with Member(broker.port, exchange, "g", "a", checker, prefetch=3) as member:
        until(lambda: len(member.held) == 3, member)
        member.read(0.05)
        assert len(member.held) == 3
        while len(member.queues) < 4:
            member.acknowledge()
            until(lambda: len(member.held) == 3, member)
        assert checker.left > 100
        until(lambda: not checker.left, member, settle=True)
    checker.check()


def test_a_queue_that_is_bound_later_is_shared_and_one_that_is_unbound_until_it_is_empty(
    broker: jumpmq.RunningBroker,
    exchange: str,
    publisher: Publisher,
    checker: Checker,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    with Member(broker.port, exchange, "g", "a", checker, prefetch=1, arguments=SOON) as member:
        publisher.publish(40, 1)
        until(lambda: member.held, member)
        held = next(iter(member.held.values()))[2]
        gone = next(queue for number in range(4) if (queue := f"{exchange}.{number}") != held)
        channel.queue_unbind(gone, exchange, "1")
        until(lambda: not checker.left, member, settle=True)
        assert gone in member.queues
        channel.queue_declare(f"{exchange}.new", durable=True)
        channel.queue_bind(f"{exchange}.new", exchange, "1")
        while f"{exchange}.new" not in member.queues:
            channel.basic_publish("", f"{exchange}.new", f"new {checker.publish('new')}".encode())
            until(lambda: not checker.left, member, settle=True)
        channel.basic_get(gone)  # no longer owned by a member
    checker.check()


def test_a_named_member_that_comes_back_has_what_it_had(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    named = [{"x-group-member": name, "x-group-grace": 20_000, **SOON} for name in ("one", "two")]
    publisher.publish(40, 1)
    with (
        Member(broker.port, exchange, "g", "a", checker, arguments=named[0]) as first,
        Member(broker.port, exchange, "g", "b", checker, arguments=named[1]) as second,
    ):
        until(lambda: not checker.left, first, second, settle=True)
        had = set(second.queues)
        second.close()
        publisher.publish(40, 1)
        for _ in range(40):
            first.read(0.01)
            first.acknowledge()
        assert checker.left
        assert not first.queues & had
        with Member(broker.port, exchange, "g", "c", checker, arguments=named[1]) as again:
            until(lambda: not checker.left, first, again, settle=True)
            assert again.queues == had
            # A second consumer of the same name replaces the first.
            with Member(broker.port, exchange, "g", "d", checker, arguments=named[1]) as third:
                publisher.publish(40, 1)
                until(lambda: not checker.left and again.cancelled, first, again, third, settle=True)
                assert third.queues == had
    checker.check()


def test_weights_and_standby(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    publisher.publish(40, 1)
    with (
        Member(broker.port, exchange, "g", "a", checker, arguments={"x-group-weight": 3, **SOON}) as heavy,
        Member(broker.port, exchange, "g", "b", checker, arguments=SOON) as light,
    ):
        until(lambda: not checker.left, heavy, light, settle=True)
        assert (len(heavy.queues), len(light.queues)) == (3, 1)
    checker.check()
    alone = f"{exchange}.0"
    single = Checker()
    direct = Publisher(broker.port, "", single, alone)
    direct.publish(3, 3)
    with (
        Member(broker.port, alone, "g", "a", single, prefetch=1) as first,
        Member(broker.port, alone, "g", "b", single, prefetch=1) as second,
    ):
        until(lambda: first.held, first, second)
        second.read(0.05)
        assert not second.held
        first.kill()
        until(lambda: not single.left, second, settle=True)
    direct.close()
    single.check()


def test_a_holder_that_does_not_settle_is_cancelled_and_its_late_settlements_are_ignored(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    publisher.publish(40, 2)
    impatient = {"x-handover-timeout": 100, **SOON}
    with Member(broker.port, exchange, "g", "a", checker, prefetch=0, arguments=impatient) as hung:
        until(lambda: len(hung.held) == 80, hung)
        tags = list(hung.held)
        checker.gone("a")  # from here on the broker may take them back at any time
        with Member(broker.port, exchange, "g", "b", checker, prefetch=0) as other:
            until(lambda: not checker.left, other, settle=True)
            until(lambda: hung.cancelled, hung)
            hung.channel.basic_ack(tags[0])
            hung.channel.basic_nack(tags[2], multiple=True)
            for tag in tags[3:]:
                hung.channel.basic_ack(tag)
            hung.channel.queue_declare(f"{exchange}.0", passive=True)  # the channel is open
            with pytest.raises(ChannelClosedByBroker, match="unknown delivery tag 1000"):
                hung.channel.basic_ack(1000)
                hung.channel.queue_declare(f"{exchange}.0", passive=True)
    checker.check()


def test_a_deleted_queue_leaves_the_group(
    broker: jumpmq.RunningBroker,
    exchange: str,
    publisher: Publisher,
    checker: Checker,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    with Member(broker.port, exchange, "g", "a", checker, prefetch=0, arguments=SOON) as member:
        publisher.publish(40, 1)
        until(lambda: len(member.held) == 40, member)
        channel.queue_delete(f"{exchange}.1")
        member.acknowledge()
        publisher.publish(40, 1)
        until(lambda: not checker.left, member, settle=True)
    checker.check()


def test_all_kinds_of_source(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique
) -> None:
    modulus = unique("modulus")
    channel.exchange_declare(modulus, "x-modulus-hash")
    for number in range(3):
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 10}
        channel.queue_declare(f"{modulus}.{number}", durable=True, arguments=arguments)
        channel.queue_bind(f"{modulus}.{number}", modulus)
    checker = Checker()
    publisher = Publisher(broker.port, modulus, checker)
    publisher.publish(20, 2)
    with Member(broker.port, modulus, "g", "a", checker, prefetch=1) as member:
        until(lambda: member.held, member)
        member.requeue()
        until(lambda: not checker.left, member, settle=True)
    publisher.close()
    checker.check()


@pytest.mark.parametrize(
    ("arguments", "options", "code", "text"),
    [
        ({}, {"auto_ack": True}, 406, "consumer group 'g' needs acknowledgements: no_ack is refused"),
        ({}, {"exclusive": True}, 403, "consumer group 'g' has no exclusive consumers"),
        ({"x-priority": 1}, {}, 406, "consumer group 'g' has no priorities: use 'x-group-weight'"),
        ({"x-consumer-group": 7}, {}, 406, "invalid arg 'x-consumer-group': {unacceptable_type,signedint}"),
        ({"x-consumer-group": ""}, {}, 406, "invalid arg 'x-consumer-group': a name has 1 to 255 octets"),
        ({"x-group-weight": 0}, {}, 406, "invalid arg 'x-group-weight': 0 is not from 1 to 10000"),
        ({"x-group-weight": "1"}, {}, 406, "invalid arg 'x-group-weight': \"expected integer, got longstr\""),
        ({"x-group-grace": -1}, {}, 406, "invalid arg 'x-group-grace': -1 is not from 0 to 86400000"),
        (
            {"x-group-grace": 1},
            {},
            406,
            "invalid arg 'x-group-grace': without 'x-group-member' a member cannot come back",
        ),
    ],
)
def test_arguments_that_are_refused(
    exchange: str,
    channel: pika.adapters.blocking_connection.BlockingChannel,
    arguments: dict[str, object],
    options: dict[str, bool],
    code: int,
    text: str,
) -> None:
    with pytest.raises(ChannelClosedByBroker) as refusal:
        channel.basic_consume(exchange, print, arguments={"x-consumer-group": "g", **arguments}, **options)
    assert refusal.value.reply_code == code
    assert refusal.value.reply_text.partition(" - ")[2] == text


def test_a_name_is_text() -> None:
    with pytest.raises(PreconditionFailed, match="'x-consumer-group': a name is text in UTF-8"):
        GroupArguments.of([Field("x-consumer-group", "S", b"\xff")])


def _refusal(port: int, act: Callable[[pika.adapters.blocking_connection.BlockingChannel], object]) -> tuple[int, str]:
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=port))
    try:
        with pytest.raises(ChannelClosedByBroker) as refusal:
            act(connection.channel())
    finally:
        connection.close()
    return refusal.value.reply_code, refusal.value.reply_text.partition(" - ")[2]


def test_so_many_members_are_away_at_most(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique
) -> None:
    queue = unique("away")
    channel.queue_declare(queue)
    for number in range(1001):
        arguments = {"x-consumer-group": "g", "x-group-member": f"m{number}", "x-group-grace": 60_000}
        channel.basic_cancel(channel.basic_consume(queue, print, arguments=arguments))
    names = [member["name"] for member in Api(broker).group(queue)["members"]]
    assert names == [f"m{number}" for number in range(1000)]
    channel.queue_delete(queue)


def test_an_exchange_that_is_bound_later_is_told(
    broker: jumpmq.RunningBroker, exchange: str, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    api, checker, further = Api(broker), Checker(), f"{exchange}.further"
    channel.exchange_declare(further, "fanout")
    with Member(broker.port, exchange, "g", "a", checker) as member:
        channel.exchange_bind(further, exchange, "1")
        until(lambda: api.group(exchange)["refused"], member)
        reason = "it is an exchange: messages that it routes to queues reach no member"
        assert api.group(exchange)["refused"] == [{"queue": further, "reason": reason}]
        channel.exchange_unbind(further, exchange, "1")
        until(lambda: not api.group(exchange)["refused"], member)


def test_sources_that_are_refused(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique
) -> None:
    def refused(source: str) -> tuple[int, str]:
        return _refusal(broker.port, lambda one: one.basic_consume(source, print, arguments={"x-consumer-group": "g"}))

    assert refused("missing") == (404, "no queue 'missing' in vhost '/'")
    assert refused("amq.topic") == (
        406,
        "exchange 'amq.topic' in vhost '/' of type 'topic' has no consumer groups: it is neither a hash exchange nor "
        "sharded",
    )
    name = unique("refused")
    channel.exchange_declare(name, "x-consistent-hash")
    channel.exchange_declare(f"{name}.further", "fanout")
    channel.exchange_bind(f"{name}.further", name, "1")
    assert refused(name) == (
        406,
        f"exchange '{name}' in vhost '/' has no consumer groups: it is bound to exchange '{name}.further'",
    )
    channel.exchange_unbind(f"{name}.further", name, "1")
    for kind, arguments, reason in (
        ("priorities", {"x-max-priority": 3}, "it has priorities"),
        (
            "quorum",
            {"x-queue-type": "quorum"},
            "it has no delivery limit, so that what is requeued goes to its end",
        ),
    ):
        queue = f"{name}.{kind}"
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, name, "1")
        assert refused(name) == (406, f"queue '{queue}' in vhost '/' has no consumer groups: {reason}")
        channel.queue_unbind(queue, name, "1")
    channel.queue_declare(f"{name}.taken")
    channel.queue_bind(f"{name}.taken", name, "1")
    tag = channel.basic_consume(f"{name}.taken", print)
    assert refused(name) == (403, f"queue '{name}.taken' in vhost '/' has consumers outside consumer group 'g'")
    channel.basic_cancel(tag)
    channel.basic_consume(name, print, arguments={"x-consumer-group": "first"})
    locked = (
        405,
        f"cannot obtain access to locked queue '{name}.taken' in vhost '/'. It is consumed by consumer group 'first'",
    )
    assert refused(name) == locked
    assert refused(f"{name}.taken") == locked
    assert _refusal(broker.port, lambda one: one.basic_consume(f"{name}.taken", print)) == locked
    assert _refusal(broker.port, lambda one: one.basic_get(f"{name}.taken")) == locked


def test_a_member_takes_part_in_what_its_user_may_read(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    api = Api(broker)
    api.put("users/reader", {"password": "reader", "tags": "management"})
    rights = {"configure": "", "write": "", "read": rf"{exchange}\.[0-3]"}
    api.put("permissions/%2F/reader", rights | {"read": "others"})
    with pytest.raises(ChannelClosedByBroker, match=rf"access to queue '{exchange}.0' in vhost '/' refused for user"):
        Member(broker.port, exchange, "g", "a", checker, user="reader")
    with pytest.raises(ChannelClosedByBroker, match="access to queue 'missing' in vhost '/' refused for user"):
        Member(broker.port, "missing", "g", "a", checker, user="reader")
    api.put("permissions/%2F/reader", rights)
    declared = publisher.channel
    declared.queue_declare(f"{exchange}.9", durable=True)
    with Member(broker.port, exchange, "g", "a", checker, arguments=SOON, user="reader") as member:
        declared.queue_bind(f"{exchange}.9", exchange, "1")
        until(lambda: api.group(exchange)["refused"], member)
        assert api.group(exchange)["refused"] == [
            {
                "queue": f"{exchange}.9",
                "reason": f"read access to queue '{exchange}.9' in vhost '/' refused for user 'reader'",
            }
        ]
        with Member(broker.port, exchange, "g", "b", checker, arguments=SOON) as other:
            publisher.publish(40, 2)
            until(lambda: not checker.left, member, other, settle=True)
            assert f"{exchange}.9" in other.queues
            assert f"{exchange}.9" not in member.queues
            assert not api.group(exchange)["refused"]
        api.put("permissions/%2F/reader", rights | {"read": ".*"})
        until(lambda: not api.group(exchange)["refused"], member)
        publisher.publish(40, 2)
        until(lambda: not checker.left, member, settle=True)
        assert len(member.queues) == 5
        shown = requests.get(f"{api.url}/consumer-groups", auth=("reader", "reader"), timeout=30).json()
        assert [one["source"] for one in shown] == [exchange]
    checker.check()


def test_a_member_whose_right_is_taken_away_ends_and_the_others_go_on(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    """A member without permission ends, and the other members get its unsettled deliveries."""
    api = Api(broker)
    api.put("users/reader", {"password": "reader", "tags": ""})
    rights = {"configure": "", "write": "", "read": ".*"}
    api.put("permissions/%2F/reader", rights)
    with (
        Member(broker.port, exchange, "g", "a", checker, arguments=SOON, user="reader") as revoked,
        Member(broker.port, exchange, "g", "b", checker, arguments=SOON) as other,
    ):
        publisher.publish(40, 2)
        until(lambda: revoked.held, revoked)
        checker.gone("a")
        api.put("permissions/%2F/reader", rights | {"read": ""})
        until(lambda: revoked.cancelled, revoked)
        publisher.publish(40, 1)
        until(lambda: not checker.left, other, settle=True)
        assert len(other.queues) == 4
    checker.check()


@pytest.mark.parametrize("how", ["user", "permissions", "vhost", "endpoint", "verb"])
def test_a_member_that_is_away_goes_with_its_user_and_by_hand(
    broker: jumpmq.RunningBroker, unique: Unique, checker: Checker, how: str
) -> None:
    api, name, host = Api(broker), unique("away"), unique("host")
    api.put(f"vhosts/{host}", {})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    for user in ("guest", "leaver"):
        api.put(f"users/{user}", {"password": user, "tags": "administrator" if user == "guest" else ""})
        api.put(f"permissions/{host}/{user}", everything)
    credentials = [pika.PlainCredentials(user, user) for user in ("guest", "leaver")]
    there, leaver = (
        pika.BlockingConnection(pika.ConnectionParameters(port=broker.port, virtual_host=host, credentials=one))
        for one in credentials
    )
    channel = there.channel()

    def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.queue_declare(name, durable=True, arguments={"x-slots": 8})
        channel.confirm_delivery()

    def members() -> list[str]:
        url = f"{api.url}/consumer-groups/{host}"
        groups = requests.get(url, auth=("guest", "guest"), timeout=30).json()
        return [one["name"] for group in groups for one in group["members"]] if isinstance(groups, list) else []

    declare(channel)
    away = {"x-consumer-group": "g", "x-group-member": "away", "x-group-grace": 24 * 3600 * 1000}
    leaver.channel().basic_consume(name, print, arguments=away)
    until(lambda: "away" in members())
    leaver.close()
    assert members() == ["away"]
    if how == "user":
        requests.delete(f"{api.url}/users/leaver", auth=("guest", "guest"), timeout=30).raise_for_status()
    elif how == "permissions":
        api.put(f"permissions/{host}/leaver", everything | {"read": ""})
    elif how == "verb":
        jumpmqctl(broker, "-p", host, "end_group_member", name, "g", "away")
    elif how == "endpoint":
        url = f"{api.url}/consumer-groups/{host}/queue/{name}/g/members/away"
        assert requests.delete(url, auth=("guest", "guest"), timeout=30).status_code == 204
        assert requests.delete(url, auth=("guest", "guest"), timeout=30).status_code == 404
    else:
        requests.delete(f"{api.url}/vhosts/{host}", auth=("guest", "guest"), timeout=30).raise_for_status()
        api.put(f"vhosts/{host}", {})
        api.put(f"permissions/{host}/guest", everything)
        there = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port, virtual_host=host))
        channel = there.channel()
        declare(channel)
    until(lambda: not members())
    for number in range(50):
        channel.basic_publish("", name, str(number).encode())
    got: set[bytes] = set()
    channel.basic_consume(name, lambda *delivery: got.add(delivery[3]), arguments={"x-consumer-group": "g"})
    until(lambda: there.process_data_events(0.05) or len(got) == 50)
    there.close()
    requests.delete(f"{api.url}/vhosts/{host}", auth=("guest", "guest"), timeout=30).raise_for_status()


def test_what_is_shown_of_a_group(
    broker: jumpmq.RunningBroker, exchange: str, publisher: Publisher, checker: Checker
) -> None:
    api = Api(broker)
    publisher.publish(40, 1)
    named = {"x-group-member": "one", "x-group-weight": 3, "x-group-grace": 20_000, **SOON}
    with Member(broker.port, exchange, "g", "a", checker, prefetch=0, arguments=named) as first:
        assert api.group(exchange)["state"] == "gathering"
        until(lambda: len(first.held) == 40, first)
        group = api.group(exchange)
        assert [
            (one["name"], one["units"], one["state"], one["messages_unacknowledged"]) for one in group["members"]
        ] == [("one", 4, "serving", 40)]
        assert {(one["queue"], one["owner"]) for one in group["units"]} == {
            (f"{exchange}.{number}", "one") for number in range(4)
        }
        with Member(broker.port, exchange, "g", "b", checker, arguments={"x-group-member": "two"}) as second:
            until(lambda: api.group(exchange)["state"] == "draining", first)
            group = api.group(exchange)
            assert (group["moves"], group["draining"]) == (1, 1)
            (drain,) = [one for one in group["units"] if one["draining"]]
            assert drain["owner"] == "two"
            assert drain["draining"]["messages"] == drain["unacknowledged"] > 0
            assert drain["draining"]["consumer_tag"] == first.tag
            listed = jumpmqctl(broker, "-q", "list_consumer_groups").splitlines()
            assert [line.split("\t")[:6] for line in listed[1:] if line.startswith(exchange)] == [
                [exchange, "g", "one", "serving", "3", "3"],
                [exchange, "g", "two", "serving", "1", "1"],
            ]
            units = jumpmqctl(broker, "-q", "list_consumer_groups", "--units")
            assert f"{drain['draining']['messages']} for " in units
            metrics = requests.get(f"http://127.0.0.1:{broker.http_port}/metrics", auth=("guest", "guest"), timeout=30)
            label = f'{{vhost="/",source="{exchange}",group="g"}}'
            for line in (f"jumpmq_group_members{label} 2", f"jumpmq_group_units_draining{label} 1",
                         f"jumpmq_group_moves_total{label} 1"):  # fmt: skip
                assert line in metrics.text
            until(lambda: not checker.left, first, second, settle=True)
            until(lambda: api.group(exchange)["state"] == "stable", first, second)
            assert api.group(exchange)["handovers"] == 1
        first.close()
        until(lambda: api.group(exchange)["members"][0]["state"] == "away")
        assert 0 < api.group(exchange)["members"][0]["grace_left"] <= 20


def test_shards_that_are_made_later_are_shared(
    broker: jumpmq.RunningBroker,
    channel: pika.adapters.blocking_connection.BlockingChannel,
    unique: Unique,
    checker: Checker,
) -> None:
    api, name = Api(broker), unique("sharded")
    policy = {"pattern": f"^{name}$", "apply-to": "exchanges", "definition": {"shards-per-node": 2}}
    api.put(f"policies/%2F/{name}", policy)
    channel.exchange_declare(name, "x-consistent-hash", durable=True)
    publisher = Publisher(broker.port, name, checker)
    with (
        Member(broker.port, name, "g", "a", checker, arguments=SOON) as first,
        Member(broker.port, name, "g", "b", checker, arguments=SOON) as second,
    ):
        publisher.publish(40, 2)
        until(lambda: not checker.left, first, second, settle=True)
        assert (len(first.queues), len(second.queues)) == (1, 1)
        api.put(f"policies/%2F/{name}", policy | {"definition": {"shards-per-node": 5}})
        until(lambda: sorted(one["units"] for one in api.group(name)["members"]) == [2, 3], first, second)
        publisher.publish(40, 2)
        until(lambda: not checker.left, first, second, settle=True)
        assert len(first.queues | second.queues) == 5
        api.put(f"policies/%2F/{name}", policy)
        publisher.publish(40, 2)
        until(lambda: not checker.left, first, second, settle=True)
    publisher.close()
    checker.check()


def test_why_a_message_is_not_delivered_to_a_group(
    broker: jumpmq.RunningBroker,
    channel: pika.adapters.blocking_connection.BlockingChannel,
    unique: Unique,
    checker: Checker,
) -> None:
    api, queue = Api(broker), unique("slots")
    channel.queue_declare(queue, durable=True, arguments={"x-slots": 2, "x-slot-key": "correlation-id"})
    publisher = Publisher(broker.port, "", checker, queue)
    publisher.publish(20, 1)
    owned = {"x-group-member": "one", "x-group-grace": 20_000, **SOON}
    with Member(broker.port, queue, "g", "a", checker, prefetch=15, arguments=owned) as first:
        assert "waits a moment for more members" in api.explain(queue, slot="0")
        until(lambda: len(first.held) == 15, first)
        assert api.explain(queue).startswith("none of the queue's ")
        busy = "member 'one' of consumer group 'g' has no room: the member holds 15 messages with a prefetch of 15"
        slots = [one["slot"] for one in api.slots(queue) if one["messages_ready"]]
        assert all(api.explain(queue, slot=str(slot)).startswith(busy) for slot in slots)
        publisher.publish(20, 1)
        with Member(broker.port, queue, "g", "b", checker, arguments={"x-group-member": "two"}) as second:
            until(lambda: api.group(queue)["state"] == "draining", first, second)
            (drain,) = [one for one in api.group(queue)["units"] if one["draining"]]
            assert api.explain(queue, slot=str(drain["slot"])).startswith(
                f"this queue or slot passes to member 'two' of consumer group 'g', once consumer '{first.tag}' of "
                f"connection {drain['draining']['connection_name']} has settled {drain['draining']['messages']} "
            )
            first.acknowledge()
            until(lambda: second.held, first, second)
        first.close()
        until(lambda: api.group(queue)["members"][0]["state"] == "away")
        until(lambda: "is away, and keeps this queue or slot for another" in api.explain(queue))
    channel.queue_delete(queue)
    publisher.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_members_share_the_slots_of_a_queue(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique, kind: str
) -> None:
    queue, checker = unique("slots"), Checker()
    arguments = {"x-slots": 8, "x-slot-key": "correlation-id", "x-in-flight-per-slot": 1, "x-queue-type": kind}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    publisher = Publisher(broker.port, "", checker, queue)
    publisher.publish(30, 3)
    with (
        Member(broker.port, queue, "g", "a", checker, arguments=SOON) as first,
        Member(broker.port, queue, "g", "b", checker, arguments=SOON) as second,
    ):
        until(lambda: len(first.held) == len(second.held) == 4, first, second)
        first.requeue()
        until(lambda: len(first.held) == 4, first)
        with Member(broker.port, queue, "g", "c", checker, arguments=SOON) as third:
            while not third.slots:
                publisher.publish(30, 1)
                for member in (first, third):
                    member.read(0.01)
                    member.acknowledge()
            # The second has given up a slot too, and still has a message of it.
            assert not third.slots & second.slots
            assert len(second.held) == 4
        second.kill()
        until(lambda: not checker.left, first, settle=True)
        assert first.slots == set(range(8))
    publisher.close()
    checker.check()
    channel.basic_get(queue)  # available to all members again


def test_keys_stay_in_order_while_members_come_and_go(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique
) -> None:
    """Keys stay in order in queues with slots while members join, leave, requeue and are killed."""
    exchange, checker, random = unique("churn"), Checker(), Random(7)
    channel.exchange_declare(exchange, "x-consistent-hash", durable=True)
    for number in range(3):
        channel.queue_declare(
            f"{exchange}.{number}", durable=True, arguments={"x-slots": 4, "x-in-flight-per-slot": 1} if number else {}
        )
        channel.queue_bind(f"{exchange}.{number}", exchange, "1")
    publisher = Publisher(broker.port, exchange, checker)
    members: list[Member] = []
    numbers = itertools.count()

    def join() -> None:
        prefetch = random.choice([0, 1, 5])
        members.append(
            Member(broker.port, exchange, "g", f"m{next(numbers)}", checker, prefetch=prefetch, arguments=SOON)
        )

    join()
    for _ in range(150):
        match random.randrange(12):
            case 0 if len(members) < 5:
                join()
            case 1 if len(members) > 1:
                members.pop(random.randrange(len(members))).close()
            case 2 if len(members) > 1:
                members.pop(random.randrange(len(members))).kill()
            case 3:
                publisher.publish(30, 1)
            case 4:
                member = random.choice(members)
                if member.held and all(queue != f"{exchange}.0" for _, _, queue in member.held.values()):
                    member.requeue()
            case _:
                member = random.choice(members)
                member.read(0.005)
                if random.random() < 0.7:
                    member.acknowledge()
    until(lambda: not checker.left, *members, settle=True)
    for member in members:
        member.close()
    publisher.close()
    checker.check()


def test_a_group_shares_so_many_slots_at_most(
    broker: jumpmq.RunningBroker, channel: pika.adapters.blocking_connection.BlockingChannel, unique: Unique
) -> None:
    exchange = unique("many")
    channel.exchange_declare(exchange, "x-consistent-hash")
    for number in range(17):
        channel.queue_declare(f"{exchange}.{number}", arguments={"x-slots": 1024})
        channel.queue_bind(f"{exchange}.{number}", exchange, "1")
    join = {"x-consumer-group": "g"}
    refused = _refusal(broker.port, lambda one: one.basic_consume(exchange, print, arguments=join))
    assert refused == (406, "consumer group 'g' would share 17408 queues and slots, more than 16384")
    channel.queue_unbind(f"{exchange}.0", exchange, "1")
    channel.basic_consume(exchange, print, arguments=join)
    channel.queue_bind(f"{exchange}.0", exchange, "1")
    api = Api(broker)
    until(lambda: api.group(exchange)["refused"])
    assert api.group(exchange)["refused"] == [
        {"queue": f"{exchange}.0", "reason": "the group shares 16384 queues and slots at most"}
    ]


def test_a_group_of_many_slots_begins_ends_and_begins_again(
    broker: jumpmq.RunningBroker,
    channel: pika.adapters.blocking_connection.BlockingChannel,
    unique: Unique,
    checker: Checker,
) -> None:
    """A group of many slots begins and ends in steps; members that join or leave meanwhile miss no queue."""
    name = unique("many")
    channel.exchange_declare(name, "x-consistent-hash")
    for number in range(6):
        channel.queue_declare(f"{name}.{number}", arguments={"x-slots": 1024})
        channel.queue_bind(f"{name}.{number}", name, "1")
    for _ in range(20):
        tag = channel.basic_consume(name, print, arguments={"x-consumer-group": "g"})
        channel.basic_cancel(tag)
    publisher = Publisher(broker.port, name, checker)
    publisher.publish(60, 2)
    with Member(broker.port, name, "g", "a", checker, arguments=SOON) as member:
        until(lambda: not checker.left, member, settle=True)
        assert len(member.queues) == 6
    publisher.close()
    free = [f"{name}.{number}" for number in range(6)]
    until(lambda: not any(one["source"] == name for one in _groups(broker)))
    for queue in free:
        channel.basic_get(queue)
        channel.queue_delete(queue)
    checker.check()


def _groups(broker: jumpmq.RunningBroker) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{broker.http_port}/api/consumer-groups/%2F"
    return cast("list[dict[str, Any]]", requests.get(url, auth=("guest", "guest"), timeout=30).json())
