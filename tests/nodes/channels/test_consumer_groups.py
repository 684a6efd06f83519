"""Consumer groups of a queue with members at several homes; the queue's home keeps the group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member, Publisher
from tests.broker.consumer_groups.members import until as soon
from tests.http.api import API
from tests.nodes.management.running_homes import RunningHomes, running_homes

GROUP = {"x-consumer-group": "billing"}


SOON = {"x-rebalance-delay": 50}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHomes]:
    """Three homes, and a queue with slots at the second home."""
    with running_homes(3, tmp_path) as homes:
        with pika.BlockingConnection(pika.URLParameters(homes.url(2))) as connection:
            channel = connection.channel()
            channel.exchange_declare("orders", "x-consistent-hash", durable=True)
            slots = {"x-slots": 16, "x-in-flight-per-slot": 1}
            channel.queue_declare("q", durable=True, arguments=slots)
            channel.queue_bind("q", "orders", "1")
        yield homes


def member(running: RunningHomes, home: int, name: str, checker: Checker, **arguments: Any) -> Member:
    """A member with a connection to a home."""
    port = running.brokers[home - 1].port
    return Member(port, "q", "billing", name, checker, arguments=SOON | arguments)


def test_members_of_all_homes_share_the_slots_of_a_queue(running: RunningHomes) -> None:
    """Every key is at a single member at a time, through joins, leaves and broken connections."""
    checker = Checker()
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    members = [member(running, home, f"m{home}", checker) for home in (1, 2, 3)]
    publisher.publish(40, 3)
    soon(lambda: all(len(one.slots) > 2 for one in members), *members, settle=True)
    members.append(member(running, 1, "m4", checker))
    publisher.publish(40, 3)
    soon(lambda: bool(members[3].slots), *members, settle=True)
    checker.gone("m3")
    members.pop(2).connection.close()
    publisher.publish(40, 3)
    soon(lambda: not checker.left, *members, settle=True)
    for one in members:
        one.close()
    publisher.close()
    checker.check()


def test_a_group_is_shown_with_the_members_of_all_homes(running: RunningHomes) -> None:
    checker = Checker()
    members = [member(running, home, f"m{home}", checker, **{"x-group-member": f"m{home}"}) for home in (1, 3)]
    api = API(running.endpoints.http_url)

    def shares() -> dict[str, int]:
        (group,) = api.get("consumer-groups")
        return {one["name"]: one["units"] for one in group["members"]}

    soon(lambda: shares() == {"m1": 8, "m3": 8}, *members)
    for one in members:
        one.close()


def test_what_a_group_has_not_is_refused_from_elsewhere_too(running: RunningHomes) -> None:
    with pika.BlockingConnection(pika.URLParameters(running.url(1))) as connection:
        for reason, wanted in (
            ("no_ack is refused", {"auto_ack": True}),
            ("has no exclusive consumers", {"exclusive": True}),
            ("'x-group-weight'", {"arguments": GROUP | {"x-group-weight": 0}}),
        ):
            channel = connection.channel()
            with pytest.raises(ChannelClosedByBroker, match=reason):
                channel.basic_consume("q", lambda *_: None, **({"arguments": GROUP} | wanted))
        connection.channel().basic_consume("q", lambda *_: None, arguments=GROUP)
        with pytest.raises(ChannelClosedByBroker, match="consumer group 'billing'"):
            connection.channel().basic_get("q")


def test_members_of_a_home_that_is_gone_leave(running: RunningHomes) -> None:
    checker = Checker()
    publisher = Publisher(running.brokers[0].port, "orders", checker)
    stays, goes = (member(running, home, f"m{home}", checker) for home in (1, 3))
    publisher.publish(40, 2)
    soon(lambda: len(goes.held) > 2 and stays.held, stays, goes)
    checker.gone("m3")
    running.run(running.leave(3))
    soon(lambda: not checker.left, stays, settle=True)
    for one in (stays, publisher):
        one.close()
    checker.check()


def test_members_elsewhere_are_cancelled_when_the_queues_home_is_gone(running: RunningHomes) -> None:
    checker = Checker()
    away = member(running, 1, "m1", checker)
    running.run(running.leave(2))
    soon(lambda: away.cancelled, away)
    away.close()
