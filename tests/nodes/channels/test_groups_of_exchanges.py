"""Consumer groups of exchanges with queues at several homes: every home assigns the local queues to all members."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher
from tests.broker.consumer_groups.members import until as soon
from tests.broker.security.tokens import KEY_SET, token
from tests.http.api import API
from tests.nodes.management.running_homes import RunningHomes, running_homes
from tests.wire import Basic, WireChannel, login

GROUP: dict[str, Any] = {"x-consumer-group": "billing"}
SOON = {"x-rebalance-delay": 50}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHomes]:
    """Three homes, and a consistent hash exchange with two queues per home."""
    with running_homes(3, tmp_path) as homes:
        for home in (1, 2, 3):
            add_queues(homes, home, f"q{home}a", f"q{home}b")
        yield homes


def add_queues(running: RunningHomes, home: int, *names: str, **arguments: Any) -> None:
    """Declare queues at a home, and bind the queues."""
    with pika.BlockingConnection(pika.URLParameters(running.url(home))) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "x-consistent-hash", durable=True)
        for name in names:
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, "orders", "1")


def member(
    running: RunningHomes,
    home: int,
    name: str,
    checker: Checker,
    prefetch: int = 10,
    arguments: dict[str, Any] | None = None,
) -> Member:
    """A member with a connection to a home."""
    port = running.brokers[home - 1].port
    return Member(port, "orders", "billing", name, checker, prefetch=prefetch, arguments=SOON | (arguments or {}))


def groups(running: RunningHomes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = API(running.endpoints.http_url).get("consumer-groups")
    return found


def shares(running: RunningHomes) -> list[int]:
    """Return the number of units per member."""
    return [one["units"] for group in groups(running) for one in group["members"]]


def test_members_of_all_homes_share_the_queues_of_an_exchange(running: RunningHomes) -> None:
    """Every key is at a single member at a time, through joins, leaves and broken connections."""
    checker = Checker()
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    members = [member(running, home, f"m{home}", checker) for home in (1, 2, 3)]
    publisher.publish(40, 3)
    soon(lambda: shares(running) == [2, 2, 2], *members, settle=True)
    members.append(member(running, 1, "m4", checker))
    publisher.publish(40, 3)
    soon(lambda: sorted(shares(running)) == [1, 1, 2, 2], *members, settle=True)
    checker.gone("m3")
    members.pop(2).connection.close()
    publisher.publish(40, 3)
    soon(lambda: sorted(shares(running)) == [2, 2, 2] and not checker.left, *members, settle=True)
    for one in members:
        one.close()
    publisher.close()
    checker.check()


def test_shares_are_as_even_as_those_of_one_home(running: RunningHomes) -> None:
    """Shares over homes are even: of six queues, two per home, four members have one or two each."""
    checker = Checker()
    members = [member(running, 1 + place % 3, f"m{place}", checker) for place in range(4)]
    soon(lambda: sorted(shares(running)) == [1, 1, 2, 2], *members)
    (group,) = groups(running)
    assert (len(group["members"]), len(group["units"]), group["source"]) == (4, 6, "orders")
    for one in members:
        one.close()


@pytest.mark.parametrize("at", [(1, 1, 1, 1), (1, 2, 3, 2)])
def test_members_that_come_together_are_one_group(running: RunningHomes, at: tuple[int, ...]) -> None:
    """Members that join at the same time, before the answers of remote homes, form one group."""
    for home in (1, 2, 3):
        add_queues(running, home, f"q{home}c", f"q{home}d")
    consume = Basic.Consume(queue="orders", arguments=GROUP | SOON)

    def are_shared(expected: list[int]) -> bool:
        return sorted(shares(running)) == expected

    with ExitStack() as stack:
        for expected in ([3] * 4, [1, 1, 1, 1, 2, 2, 2, 2]):
            channels = [stack.enter_context(login(running.brokers[home - 1].port)).channel() for home in at]
            for channel in channels:
                channel.send(consume)
            for channel in channels:
                assert isinstance(channel.next(), Basic.ConsumeOk)
            soon(partial(are_shared, expected))
    soon(lambda: groups(running) == [])


def one_at_most(running: RunningHomes, in_force: set[WireChannel]) -> bool:
    """Return True if at most one uncancelled member is left, with all shares."""
    in_force.difference_update([one for one in in_force if not one.is_silent(0.01)])
    return len(in_force) < 2 and shares(running) == [6] * len(in_force)


@pytest.mark.slow
def test_members_of_one_name_that_come_together_are_one_member_at_most(running: RunningHomes) -> None:
    """Of members with equal names and concurrent joins, at most one remains; the rest is cancelled everywhere."""
    checker = Checker()
    for _ in range(2):
        channels = [login(running.brokers[home - 1].port).channel() for home in (1, 2)]
        for channel in channels:
            channel.send(Basic.Consume(queue="orders", arguments=GROUP | SOON | {"x-group-member": "one"}))
        for channel in channels:
            assert isinstance(channel.next(), Basic.ConsumeOk)
        in_force = set(channels)
        soon(partial(one_at_most, running, in_force))
        for channel in channels:
            channel.connection.close()
        soon(lambda: groups(running) == [])
    with member(running, 3, "m", checker) as only:
        soon(lambda: shares(running) == [6], only)


def test_queues_with_slots_at_other_homes_are_shared_slot_by_slot(running: RunningHomes) -> None:
    add_queues(running, 2, "slotted", **{"x-slots": 8, "x-in-flight-per-slot": 1})
    checker = Checker()
    members = [member(running, home, f"m{home}", checker) for home in (1, 3)]
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    soon(lambda: shares(running) == [7, 7], *members)
    publisher.publish(200, 2)
    soon(lambda: not checker.left, *members, settle=True)
    assert members[0].slots and members[1].slots
    for one in members:
        one.close()
    publisher.close()
    checker.check()


def test_the_prefetch_is_that_of_all_homes_together(running: RunningHomes) -> None:
    checker = Checker()
    only = member(running, 2, "m", checker, prefetch=3)
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    publisher.publish(60, 2)
    most = 0

    def all_there() -> bool:
        nonlocal most
        most = max(most, len(only.held))
        if len(only.held) == 3:
            only.acknowledge()
        return checker.left <= 2

    soon(all_there, only)
    soon(lambda: not checker.left, only, settle=True)
    assert most == 3
    assert only.queues == {f"q{home}{letter}" for home in (1, 2, 3) for letter in "ab"}
    for one in (only, publisher):
        one.close()
    checker.check()


def test_what_waits_for_a_client_goes_back_when_it_cancels(running: RunningHomes) -> None:
    checker = Checker()
    first = member(running, 1, "m1", checker, prefetch=1)
    publisher = Publisher(running.brokers[1].port, "orders", checker)
    publisher.publish(60, 1)
    soon(lambda: first.held, first)
    first.channel.basic_cancel(first.tag)
    soon(lambda: groups(running) == [] or not groups(running)[0]["members"], first)
    second = member(running, 3, "m2", checker)
    soon(lambda: len(second.queues) == 5, second, settle=True)  # all but the queue with unsettled messages
    first.acknowledge()
    soon(lambda: not checker.left, first, second, settle=True)
    for one in (first, second, publisher):
        one.close()
    checker.check()


def test_a_queue_that_is_bound_later_is_shared_wherever_it_is(running: RunningHomes) -> None:
    checker = Checker()
    only = member(running, 1, "m", checker)
    soon(lambda: shares(running) == [6], only)
    add_queues(running, 3, "later")
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    soon(lambda: shares(running) == [7], only)
    publisher.publish(100, 1)
    soon(lambda: not checker.left, only, settle=True)
    assert "later" in only.queues
    for one in (only, publisher):
        one.close()
    checker.check()


def test_a_member_goes_on_while_a_home_is_down_and_joins_it_again(running: RunningHomes) -> None:
    checker = Checker()
    members = [member(running, home, f"m{home}", checker) for home in (1, 2)]
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    publisher.publish(60, 1)
    soon(lambda: not checker.left, *members, settle=True)
    running.run(running.leave(3))
    soon(lambda: sum(shares(running)) == 4, *members, settle=True)
    running.run(running.come_back(3))
    soon(lambda: shares(running) == [3, 3], *members, settle=True)
    publisher.publish(60, 1)
    soon(lambda: not checker.left, *members, settle=True)
    assert not any(one.cancelled for one in members)
    assert {"q3a", "q3b"} <= members[0].queues | members[1].queues
    for one in members:
        one.close()
    publisher.close()
    checker.check()


def test_a_member_that_settles_nothing_is_cancelled_once(running: RunningHomes) -> None:
    """A member that settles nothing is cancelled once, and its share reassigned; late settlements have no effect."""
    checker = Checker()
    hung = member(running, 1, "hung", checker, arguments={"x-handover-timeout": 300})
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    publisher.publish(60, 1)
    soon(lambda: len(hung.held) == 10, hung)
    checker.gone("hung")
    other = member(running, 2, "other", checker)
    soon(lambda: not checker.left, other, settle=True)
    soon(lambda: hung.cancelled, hung)
    hung.channel.basic_ack(0, multiple=True)
    hung.read()
    assert shares(running) == [6]
    for one in (other, publisher):
        one.close()
    hung.connection.close()
    checker.check()


def test_one_that_takes_the_name_of_another_takes_its_place_at_all_homes(running: RunningHomes) -> None:
    checker = Checker()
    before, after = (member(running, home, f"m{home}", checker, arguments={"x-group-member": "one"}) for home in (1, 2))
    soon(lambda: before.cancelled and shares(running) == [6], before, after)
    for one in (before, after):
        one.close()


def test_what_another_home_refuses_is_refused(running: RunningHomes) -> None:
    """A refusal by a remote home refuses the member at all homes."""
    with pika.BlockingConnection(pika.URLParameters(running.url(3))) as connection:
        connection.channel().basic_consume("q3a", lambda *_: None)
        for home in (1, 2, 3):
            with (
                pika.BlockingConnection(pika.URLParameters(running.url(home))) as other,
                pytest.raises(ChannelClosedByBroker, match="'q3a' in vhost '/' has consumers outside consumer group"),
            ):
                other.channel().basic_consume("orders", lambda *_: None, arguments=GROUP)
            soon(lambda: groups(running) == [])
    checker = Checker()
    only = member(running, 1, "m", checker)
    soon(lambda: shares(running) == [6], only)
    only.close()


def test_a_user_is_given_what_it_may_read_of_the_queues_of_all_homes(running: RunningHomes) -> None:
    api = API(running.endpoints.http_url)
    api.request("PUT", "users", "eve", json={"password": "eve", "tags": ""})
    api.request("PUT", "permissions", "/", "eve", json={"configure": "", "write": "", "read": "orders|q1.*|q2.*"})
    parameters = pika.ConnectionParameters(
        port=running.brokers[0].port, credentials=pika.PlainCredentials("eve", "eve")
    )
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().basic_consume("orders", lambda *_: None, arguments=GROUP)
        soon(lambda: shares(running) == [4])
        refused = {one["queue"]: one["reason"] for one in groups(running)[0]["refused"]}
        assert refused == {
            name: f"read access to queue '{name}' in vhost '/' refused for user 'eve'" for name in ("q3a", "q3b")
        }
        api.request("PUT", "permissions", "/", "eve", json={"configure": "", "write": "", "read": "orders"})
        soon(lambda: not groups(running))
    with (
        pika.BlockingConnection(parameters) as connection,
        pytest.raises(ChannelClosedByBroker, match="read access to queue 'q1a'"),
    ):
        connection.channel().basic_consume("orders", lambda *_: None, arguments=GROUP)


def test_a_token_counts_at_all_homes(tmp_path: Path) -> None:
    """A token's permissions count at all homes, and not those of a stored user with the bearer's name."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(KEY_SET))
    with running_homes(2, tmp_path, oauth_resource="rabbit", oauth_keys=str(keys)) as running:
        for home in (1, 2):
            add_queues(running, home, f"q{home}")

        def join(count: int, *scopes: str) -> None:
            password = token(*scopes, client_id="guest")
            credentials = pika.PlainCredentials("", password)
            port = running.brokers[0].port
            with pika.BlockingConnection(pika.ConnectionParameters(port=port, credentials=credentials)) as connection:
                connection.channel().basic_consume("orders", lambda *_: None, arguments=GROUP)
                soon(lambda: shares(running) == [count])

        join(2, "rabbit.read:*/*")
        join(1, "rabbit.read:%2F/q1", "rabbit.read:%2F/orders")
        with pytest.raises(ChannelClosedByBroker, match="read access to queue 'q1'"):
            join(0, "rabbit.read:%2F/orders")


def test_each_member_has_a_part_of_the_sum(running: RunningHomes) -> None:
    """Members share by the sum of weights over all homes: of six queues they have four and two."""
    checker = Checker()
    members = [
        member(running, 1, "heavy", checker, arguments={"x-group-weight": 2, "x-group-member": "heavy"}),
        member(running, 3, "light", checker, arguments={"x-group-member": "light"}),
    ]
    soon(lambda: shares(running) == [4, 2], *members)
    owners = Counter(unit["owner"] for unit in groups(running)[0]["units"])
    assert owners == {"heavy": 4, "light": 2}
    for one in members:
        one.close()


@pytest.mark.parametrize("members_at", [(1, 3), (2, 2)])
def test_streams_at_other_homes_are_read_from_where_the_group_was(running: RunningHomes, members_at: Any) -> None:
    """Streams at remote homes are read from the group's offsets, which every home shows and sets."""
    for home in (1, 2, 3):
        with pika.BlockingConnection(pika.URLParameters(running.url(home))) as connection:
            channel = connection.channel()
            channel.exchange_declare("events", "x-consistent-hash", durable=True)
            channel.queue_declare(f"s{home}", durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(f"s{home}", "events", "1")
    checker = Checker()
    publisher = Publisher(running.brokers[0].port, "events", checker)
    publisher.publish(40, 2)
    for number in range(2):
        members = [
            Member(running.brokers[home - 1].port, "events", "g", f"m{number}{place}", checker,
                   arguments=SOON | {"x-stream-offset": "first"})
            for place, home in enumerate(members_at)
        ]  # fmt: skip
        publisher.publish(40, 2)
        soon(lambda: not checker.left, *members, settle=True)
        assert {queue for one in members for queue in one.queues} == {"s1", "s2", "s3"}
        for one in members:
            one.close()
    publisher.close()
    checker.check()
    api = API(running.endpoints.http_url)
    soon(lambda: [one["lag"] for one in api.get("group-offsets", "/")] == [0, 0, 0])
    for home in (1, 2, 3):
        answer = api.request("PUT", "group-offsets", "/", f"s{home}", "g", json={"offset": "first"})
        assert answer.status_code == 204
    assert sum(one["lag"] for one in api.get("group-offsets")) == 240


def test_a_stream_of_another_home_has_groups(running: RunningHomes) -> None:
    with pika.BlockingConnection(pika.URLParameters(running.url(2))) as connection:
        connection.channel().queue_declare("alone", durable=True, arguments={"x-queue-type": "stream"})
    with (
        pika.BlockingConnection(pika.URLParameters(running.url(1))) as connection,
        pytest.raises(ChannelClosedByBroker, match="prefetch count is not set"),
    ):
        connection.channel().basic_consume("alone", lambda *_: None, arguments=GROUP)
    checker = Checker()
    publisher = Publisher(running.brokers[2].port, "", checker, "alone")
    for name in "ab":
        with Member(running.brokers[0].port, "alone", "billing", name, checker,
                    arguments={"x-stream-offset": "first"}) as only:  # fmt: skip
            publisher.publish(5, 2)
            soon(lambda: not checker.left, only, settle=True)
    publisher.close()
    checker.check()
