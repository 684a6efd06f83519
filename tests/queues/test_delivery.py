"""Delivery to many consumers: capacity requests, notifications, and order of service."""

import pytest
from tests.queues.consumers import Taker, message, push

from jumpmq.amqp.messages import Message
from jumpmq.queues.arguments import Limits
from jumpmq.queues.classic import ClassicQueue

MANY = 1000


@pytest.fixture
def queue() -> ClassicQueue:
    return ClassicQueue("/", "q", id=1)


def questions(takers: list[Taker]) -> int:
    """Return the number of capacity requests to consumers since the last call."""
    asked = sum(taker.asked for taker in takers)
    for taker in takers:
        taker.asked = 0
    return asked


def test_a_message_for_many_consumers_asks_one(queue: ClassicQueue) -> None:
    takers = [Taker(queue).start() for _ in range(MANY)]
    questions(takers)
    for number in range(2 * MANY):
        push(queue, b"%d" % number)
    assert questions(takers) <= 4 * MANY
    assert [taker.bodies for taker in takers] == [[b"%d" % number, b"%d" % (number + MANY)] for number in range(MANY)]


def test_those_without_room_are_asked_once(queue: ClassicQueue) -> None:
    takers = [Taker(queue, prefetch=1).start() for _ in range(MANY)]
    push(queue, *[b"first"] * MANY)
    push(queue, *[b"second"] * MANY)
    questions(takers)
    for taker in reversed(takers):
        taker.ack(1)
    assert questions(takers) <= 4 * MANY
    assert {tuple(taker.bodies) for taker in takers} == {(b"second",)}


def test_each_of_many_priorities_is_asked_once(queue: ClassicQueue) -> None:
    takers = [Taker(queue, prefetch=1, priority=number).start() for number in range(MANY)]
    questions(takers)
    for number in range(MANY):
        push(queue, b"%d" % number)
    assert questions(takers) <= 4 * MANY
    assert [taker.bodies for taker in takers] == [[b"%d" % number] for number in reversed(range(MANY))]
    takers[3].ack(1)
    takers[7].ack(1)
    push(queue, b"again")
    assert (takers[3].bodies, takers[7].bodies) == ([], [b"again"])


def test_only_the_active_one_is_asked(queue: ClassicQueue) -> None:
    queue.set_limits(Limits(single_active_consumer=True))
    takers = [Taker(queue, prefetch=1).start() for _ in range(MANY)]
    push(queue, *[b"m"] * MANY)
    questions(takers)
    for taker in takers:
        assert taker.bodies == [b"m"]
        taker.give_back()
    assert questions(takers) <= 4 * MANY


def test_a_connection_that_is_congested_is_left_alone(queue: ClassicQueue) -> None:
    takers = [Taker(queue).start() for _ in range(MANY)]
    for taker in takers:
        taker.willing = False
    push(queue, b"first")
    assert queue.ready_count == 1
    questions(takers)
    for _ in range(MANY):
        push(queue, b"more")
    assert questions(takers) == 0
    assert all(taker.passed == 1 for taker in takers)
    takers[5].resume()
    assert len(takers[5].held) == MANY + 1


def test_a_consumer_goes_from_its_place_among_many(queue: ClassicQueue) -> None:
    takers = [Taker(queue, priority=number % 3).start() for number in range(9)]
    for number in (4, 0, 8):
        queue.unsubscribe(takers[number])
    assert queue.consumers == [takers[number] for number in (2, 5, 1, 7, 3, 6)]
    queue.unsubscribe(takers[4])
    assert len(queue.consumers) == 6


def test_consumers_that_share_room_get_one_message_each(queue: ClassicQueue) -> None:
    class Sharing(Taker):
        @property
        def shares_capacity(self) -> bool:
            return True

    takers = [Sharing(queue) for _ in range(3)]
    push(queue, *[b"%d" % number for number in range(6)])
    for taker in takers:
        queue.subscribe(taker)
    queue.dispatch()
    assert [taker.bodies for taker in takers] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


def test_fewer_messages_than_consumers_leave_the_rest_next_in_turn(queue: ClassicQueue) -> None:
    class Short(ClassicQueue):
        """Delivers two messages at a time, as with large bodies."""

        def take_for_delivery(self, count: int) -> list[Message]:
            return super().take_for_delivery(min(count, 2))

    short = Short("/", "short", id=2)
    short.push([message(b"%d" % number) for number in range(8)])
    takers = [Taker(short, prefetch=2) for _ in range(5)]
    for taker in takers:
        short.subscribe(taker)
    short.dispatch()
    assert [taker.bodies for taker in takers] == [[b"0", b"5"], [b"1", b"6"], [b"2", b"7"], [b"3"], [b"4"]]
