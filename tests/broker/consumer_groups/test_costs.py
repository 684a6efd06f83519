"""Costs of members that join and leave: counted, not timed."""

from collections import Counter

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

import jumpmq
from jumpmq.broker.consumer_groups.group import ConsumerGroup, MemberSession, Partition

MEMBERS, QUEUES, SLOTS = 500, 8, 512


class Idle(MemberSession):
    """A session without deliveries, with counted calls."""

    handover_timeout = None

    def __init__(self, asked: Counter[str]) -> None:
        self.asked = asked

    @property
    def reader(self) -> str:
        return "user"

    def start(self, unit: Partition) -> int:
        self.asked["start"] += 1
        return self.asked.total()

    def stop(self, unit: Partition) -> None:
        self.asked["stop"] += 1

    def held(self, unit: Partition) -> int:
        self.asked["held"] += 1
        return 0

    def evict(self) -> None:
        raise AssertionError("nothing is overdue")


class Group:
    """A group with a manual clock."""

    def __init__(self) -> None:
        self.group, self.now, self.asked = ConsumerGroup("g"), 0.0, Counter[str]()
        for queue in range(QUEUES):
            units = tuple(Partition(f"q{queue}", queue, slot) for slot in range(SLOTS))
            self.group.set_queue(units, frozenset(), self.now)
        self.sessions = [self.join(f"m{number}") for number in range(MEMBERS)]
        self.step(10.0)

    def join(self, name: str) -> Idle:
        session = Idle(self.asked)
        self.group.join(session, name, 1, 0.0, self.now)
        return session

    def step(self, seconds: float = 0.0) -> int:
        """Perform due work; return the number of clock readings."""
        self.now += seconds
        self.asked.clear()
        looks = Counter[str]()

        def more() -> bool:
            looks["looks"] += 1
            return True

        self.group.step(self.now, more)
        return looks["looks"]


def test_a_departure_costs_what_departs() -> None:
    group = Group()
    group.asked.clear()
    group.group.leave(group.sessions[7], group.now)
    its = QUEUES * SLOTS // MEMBERS + 1
    assert group.asked["stop"] <= its
    assert group.step() < 10 * its
    assert group.asked["start"] <= its and group.asked["held"] <= its
    assert all(place.owner is not None for place in group.group.places.values())


def test_many_departures_in_one_turn_are_one() -> None:
    """Units of many members that leave in one turn are given away once."""
    group = Group()
    for session in group.sessions[:-1]:
        group.group.leave(session, group.now)
    units = QUEUES * SLOTS
    assert group.step() < 6 * units
    assert group.asked["start"] <= units
    assert {place.owner for place in group.group.places.values()} == {group.group.members[f"m{MEMBERS - 1}"]}


def test_a_step_is_as_long_as_there_is_time() -> None:
    """A step takes the available time, and the next step continues the work."""
    group = Group()
    for session in group.sessions[:-1]:
        group.group.leave(session, group.now)
    steps = 1
    while True:
        group.asked.clear()
        looks = iter(range(100))
        at = group.group.step(group.now, lambda looks=looks: next(looks, None) is not None)  # type: ignore[misc]
        assert sum(group.asked.values()) <= 110
        if at > group.now:
            break
        steps += 1
    assert steps > QUEUES * SLOTS / 100
    assert {place.owner for place in group.group.places.values()} == {group.group.members[f"m{MEMBERS - 1}"]}


def test_members_of_a_group_and_groups_of_a_user_are_limited() -> None:
    with (
        jumpmq.running(consumer_group_member_max=3, consumer_group_max_per_user=2) as broker,
        pika.BlockingConnection(pika.ConnectionParameters(port=broker.port)) as connection,
    ):
        for name in "qrs":
            connection.channel().queue_declare(name, arguments={"x-slots": 4})

        def join(queue: str, **named: object) -> pika.adapters.blocking_connection.BlockingChannel:
            channel = connection.channel()
            channel.basic_consume(queue, print, arguments={"x-consumer-group": "g", **named})
            return channel

        def refused(queue: str, reason: str) -> None:
            with pytest.raises(ChannelClosedByBroker) as refusal:
                join(queue)
            assert refusal.value.reply_code == 406
            assert refusal.value.reply_text == f"PRECONDITION_FAILED - {reason}"

        first = join("q", **{"x-group-member": "first"})
        join("q")
        join("q")
        refused("q", "consumer group 'g' in vhost '/' has reached the maximum of 3 members")
        join("q", **{"x-group-member": "first"})  # takes the place of the first
        first.close()
        other = join("r")
        refused("s", "user 'guest' has reached the maximum of 2 consumer groups with a member")
        other.close()
        join("s")
