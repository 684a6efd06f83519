"""The classic queue as its users see it: order, consumers in turn, limits, dead-lettered and expired messages."""

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.queues.consumers import Taker, message, push, ready

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, clock, delivery
from jumpmq.queues.base import Queue, QueueContext
from jumpmq.queues.classic import CHUNK_OCTETS, STEP, ClassicQueue
from jumpmq.queues.clock import NEVER
from jumpmq.queues.memory import MemoryAccount


class DeadLetters:
    """Keeps messages that left a queue undelivered."""

    behind = False

    def __init__(self) -> None:
        self.found: list[tuple[bytes, str]] = []

    def is_behind(self, queue: Queue) -> bool:
        return self.behind

    def publish(self, queue: Queue, messages: list[Message], reason: str) -> None:
        self.found += [(message.body, reason) for message in messages]

    def count_discarded(self, queue: Queue, count: int, reason: str) -> None:
        raise AssertionError("there is an exchange")


def make_queue(dead_letters: DeadLetters | None = None, **arguments: Any) -> ClassicQueue:
    """A queue in memory; ``max_length=2`` is the argument ``x-max-length``."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    if dead_letters is None:
        return ClassicQueue("/", "q", id=1, arguments=named)
    arguments = {"x-dead-letter-exchange": "", **named}
    return ClassicQueue("/", "q", id=1, arguments=arguments, context=QueueContext(dead_letters=dead_letters))


@pytest.fixture
def queue() -> ClassicQueue:
    return make_queue()


# --- order and numbers ---


def test_messages_leave_in_the_order_of_their_arrival(queue: ClassicQueue) -> None:
    push(queue, b"a", b"b")
    push(queue, b"c")
    assert [one.body for one in queue.take(2)] == [b"a", b"b"]
    assert [one.body for one in queue.take(2)] == [b"c"]
    assert queue.take(1) == []
    assert (queue.ready_count, queue.unacknowledged_count, queue.message_count) == (0, 3, 3)


def test_numbers_go_up_and_are_never_given_twice(queue: ClassicQueue) -> None:
    push(queue, b"a", b"b")
    queue.purge()
    push(queue, b"c")
    taken = queue.take(1)
    queue.settle(taken, Outcome.ACKNOWLEDGED)
    push(queue, b"d")
    assert [one.seq for one in taken + queue.take(1)] == [3, 4]
    assert queue.next_seq == 5


def test_a_message_that_is_in_another_queue_is_copied(queue: ClassicQueue) -> None:
    other, original = make_queue(), message(b"a")
    other.push([original])
    queue.push([original])
    (here,), (there,) = queue.take(1), other.take(1)
    assert here is not there
    assert here.body is there.body
    assert (here.queue, there.queue) == (queue, other)


def test_what_is_acknowledged_is_gone(queue: ClassicQueue) -> None:
    push(queue, b"a", b"b")
    queue.settle(queue.take(1), Outcome.ACKNOWLEDGED)
    assert (queue.ready_count, queue.unacknowledged_count, queue.acknowledged) == (1, 0, 1)
    assert ready(queue) == [b"b"]


def test_what_is_requeued_returns_to_its_place_marked(queue: ClassicQueue) -> None:
    push(queue, b"a", b"b", b"c", b"d", b"e")
    taken = queue.take(4)
    queue.settle([taken[3], taken[1]], Outcome.REQUEUED)
    queue.settle([taken[2]], Outcome.REQUEUED)
    assert [(one.body, one.redelivered) for one in queue.take(9)] == [
        (b"b", True), (b"c", True), (b"d", True), (b"e", False),
    ]  # fmt: skip


def test_peeking_takes_nothing(queue: ClassicQueue) -> None:
    push(queue, *(b"%d" % number for number in range(1, 7)))
    assert [one.body for one in queue.peek(2, 5)] == [b"2", b"3", b"4", b"5"]
    assert [one.body for one in queue.peek(2, 5, limit=2)] == [b"2", b"3"]
    assert queue.peek(7, 9) == []
    assert queue.ready_count == 6


def test_a_range_may_be_taken_from_the_middle(queue: ClassicQueue) -> None:
    push(queue, *(b"%d" % number for number in range(1, 7)))
    assert [one.body for one in queue.take_range(3, 5, 2)] == [b"3", b"4"]
    assert ready(queue) == [b"1", b"2", b"5", b"6"]
    assert queue.unacknowledged_count == 2


def test_purging_spares_what_is_unacknowledged(queue: ClassicQueue) -> None:
    push(queue, b"a", b"b", b"c")
    taken = queue.take(1)
    assert queue.purge() == 2
    assert (queue.ready_count, queue.unacknowledged_count) == (0, 1)
    queue.settle(taken, Outcome.REQUEUED)
    assert ready(queue) == [b"a"]


def test_deleting_cancels_the_consumers(queue: ClassicQueue) -> None:
    taker = Taker(queue, prefetch=1).start()
    push(queue, b"a", b"b", b"c")
    assert queue.delete() == 2
    assert taker.gone
    assert queue.consumers == []
    taker.ack(1)
    assert queue.ready_count == 0


# --- consumers ---


def test_consumers_take_turns(queue: ClassicQueue) -> None:
    takers = [Taker(queue).start() for _ in range(3)]
    for number in range(7):
        push(queue, b"%d" % number)
    assert [taker.bodies for taker in takers] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_consumers_share_what_comes_at_once(queue: ClassicQueue) -> None:
    push(queue, *(b"%d" % number for number in range(9)))
    takers = [Taker(queue, prefetch=3) for _ in range(3)]
    for taker in takers:
        queue.subscribe(taker)
    queue.dispatch()
    assert [taker.bodies for taker in takers] == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]


def test_a_consumer_holds_no_more_than_its_prefetch(queue: ClassicQueue) -> None:
    taker = Taker(queue, prefetch=2).start()
    push(queue, b"a", b"b", b"c", b"d")
    assert taker.bodies == [b"a", b"b"]
    taker.ack(1)
    assert taker.bodies == [b"b", b"c"]
    assert (queue.ready_count, queue.unacknowledged_count) == (1, 2)


def test_a_consumer_that_takes_everything_gets_it_in_steps(queue: ClassicQueue) -> None:
    bodies = [b"%d" % number for number in range(3 * delivery.STEP)]
    push(queue, *bodies)
    taker = Taker(queue).start()
    assert len(taker.bodies) == delivery.STEP
    while queue.ready_count:
        assert queue.wakes_at < NEVER
        queue.maintain(clock.now())
    assert taker.bodies == bodies


def test_a_consumer_without_acknowledgement_holds_nothing(queue: ClassicQueue) -> None:
    taker = Taker(queue, no_ack=True).start()
    push(queue, b"a", b"b")
    assert taker.bodies == [b"a", b"b"]
    assert (queue.message_count, queue.delivered, queue.acknowledged) == (0, 2, 2)


def test_what_a_consumer_leaves_behind_goes_to_the_others_in_order(queue: ClassicQueue) -> None:
    first = Taker(queue, prefetch=3).start()
    push(queue, b"a", b"b", b"c", b"d")
    second = Taker(queue).start()
    assert second.bodies == [b"d"]
    first.give_back()
    assert [(one.body, one.redelivered) for one in second.held] == [
        (b"d", False), (b"a", True), (b"b", True), (b"c", True),
    ]  # fmt: skip


def test_higher_priorities_come_first_while_they_have_room(queue: ClassicQueue) -> None:
    low, high = Taker(queue).start(), Taker(queue, prefetch=2, priority=5).start()
    push(queue, b"a", b"b", b"c", b"d")
    assert (high.bodies, low.bodies) == ([b"a", b"b"], [b"c", b"d"])
    high.ack(2)
    push(queue, b"e")
    assert high.bodies == [b"e"]


def test_an_exclusive_consumer_is_alone(queue: ClassicQueue) -> None:
    exclusive = Taker(queue, exclusive=True).start()
    with pytest.raises(AccessRefused, match="exclusive use"):
        Taker(queue).start()
    queue.unsubscribe(exclusive)
    Taker(queue).start()
    with pytest.raises(AccessRefused, match="exclusive use"):
        Taker(queue, exclusive=True).start()


def test_a_single_active_consumer_has_an_heir() -> None:
    queue = make_queue(single_active_consumer=True)
    active, waiting = Taker(queue, prefetch=1).start(), Taker(queue).start()
    push(queue, b"a", b"b")
    assert (active.bodies, waiting.bodies) == ([b"a"], [])
    active.give_back()
    assert waiting.bodies == [b"b", b"a"] or waiting.bodies == [b"a", b"b"]


def test_large_messages_are_handed_over_a_few_at_a_time(queue: ClassicQueue) -> None:
    """Large messages are delivered in small batches, whatever the consumers' capacity, to bound the buffers."""

    class Slow(Taker):
        def deliver(self, messages: list[Message]) -> None:
            super().deliver(messages)
            self.willing = False

    push(queue, *[bytes(CHUNK_OCTETS // 4)] * 20)
    taker = Slow(queue).start()
    assert len(taker.held) == 4
    taker.resume()
    assert len(taker.held) == 8
    push(queue, bytes(3 * CHUNK_OCTETS))
    taker.ack(8)
    while queue.ready_count:
        taker.resume()
    assert [one.seq for one in taker.held] == list(range(9, 22))


# --- time to live ---


def test_messages_expire_by_the_clock_of_their_queue() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters, message_ttl=1000)
    before = time.time()
    push(queue, b"a", b"b")
    after = time.time()
    queue.trim(before)
    assert queue.ready_count == 2
    assert before + 1 - 0.01 <= queue.wakes_at <= after + 1.1
    queue.trim(after + 1.1)
    assert dead_letters.found == [(b"a", "expired"), (b"b", "expired")]


def test_a_message_may_bring_a_shorter_time_than_its_queue_has() -> None:
    queue = make_queue(message_ttl=60_000)
    short, long = message(b"short"), message(b"long")
    short.expires_at, long.expires_at = time.time() + 1, time.time() + 3600
    queue.push([short, long])
    queue.trim(time.time() + 2)
    assert ready(queue) == [b"long"]
    queue.trim(time.time() + 61)
    assert ready(queue) == []


def test_an_expired_message_is_not_delivered(queue: ClassicQueue) -> None:
    late = message(b"late")
    late.expires_at = time.time() - 1
    queue.expect_expiry()
    queue.push([late, message(b"in time")])
    assert Taker(queue).start().bodies == [b"in time"]


def test_messages_in_the_middle_wait_for_their_turn_to_expire(queue: ClassicQueue) -> None:
    """An expired message behind unexpired messages stays until it is at the front, as in RabbitMQ."""
    late = message(b"late")
    late.expires_at = time.time() - 1
    queue.expect_expiry()
    queue.push([message(b"first"), late])
    assert queue.ready_count == 2
    assert [one.body for one in queue.take(1)] == [b"first"]
    assert queue.take(1) == []


# --- limits ---


def test_the_oldest_messages_make_room() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters, max_length=2)
    assert push(queue, b"a", b"b", b"c") == []
    push(queue, b"d")
    assert ready(queue) == [b"c", b"d"]
    assert dead_letters.found == [(b"a", "maxlen"), (b"b", "maxlen")]


def test_the_oldest_octets_make_room() -> None:
    queue = make_queue(max_length_bytes=10)
    push(queue, b"12345", b"67890", b"1")
    assert ready(queue) == [b"67890", b"1"]


def test_consumers_come_before_the_limit() -> None:
    queue = make_queue(max_length=1)
    taker = Taker(queue, prefetch=2).start()
    push(queue, b"a", b"b", b"c", b"d")
    assert (taker.bodies, ready(queue)) == ([b"a", b"b"], [b"d"])


def test_what_returns_beyond_the_limit_pushes_the_oldest_out() -> None:
    queue = make_queue(max_length=2)
    push(queue, b"a", b"b")
    taken = queue.take(2)
    push(queue, b"c", b"d")
    queue.settle(taken, Outcome.REQUEUED)
    assert ready(queue) == [b"c", b"d"]


@pytest.mark.parametrize("size", [{"max_length": 2}, {"max_length_bytes": 2}, {"max_length_bytes": 3}], ids=str)
def test_the_newest_messages_are_refused(size: dict[str, int]) -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters, overflow="reject-publish", **size)
    room = max(size.values())
    bodies = [b"a", b"b", b"c", b"d", b"e"]
    assert push(queue, *bodies) == bodies[room:]
    assert ready(queue) == bodies[:room]
    assert dead_letters.found == []


def test_refused_messages_may_be_dead_letters_too() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters, overflow="reject-publish-dlx", max_length=1)
    assert push(queue, b"a", b"b") == [b"b"]
    assert dead_letters.found == [(b"b", "maxlen")]


def test_nothing_is_refused_that_a_consumer_takes_at_once() -> None:
    queue = make_queue(overflow="reject-publish", max_length=1)
    taker = Taker(queue, prefetch=3).start()
    assert push(queue, b"a", b"b", b"c", b"d", b"e") == [b"e"]
    assert (taker.bodies, ready(queue)) == ([b"a", b"b", b"c"], [b"d"])


def test_rejected_messages_are_dead_lettered() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters)
    push(queue, b"a", b"b")
    queue.settle(queue.take(1), Outcome.REJECTED)
    assert dead_letters.found == [(b"a", "rejected")]
    assert (queue.ready_count, queue.unacknowledged_count) == (1, 0)


# --- clocks and steps ---


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_jumps_expires_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    queue = make_queue(message_ttl=1000)
    push(queue, b"before")
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    push(queue, b"after")
    assert ready(queue) == [b"before", b"after"]
    assert queue.peek(0, 1)[0].expires_at <= clock.now() + 1
    time.sleep(1.01)
    assert queue.take(2) == []


def test_a_queue_of_many_is_shortened_in_steps_and_says_how_long_it_is_meanwhile() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters)
    push(queue, *[b"%d" % number for number in range(5 * STEP)])
    queue.set_limits(replace(queue.limits, max_length=10))
    assert queue.ready_count == 4 * STEP
    while queue.ready_count > 10:
        assert queue.wakes_at < NEVER
        queue.maintain(clock.now())
    assert [body for body, _ in dead_letters.found] == [b"%d" % number for number in range(5 * STEP - 10)]


def test_what_is_purged_counts_at_once_and_is_settled_in_steps() -> None:
    account = MemoryAccount()
    queue = ClassicQueue("/", "q", id=1, context=QueueContext(memory=account))
    push(queue, *[b"x"] * 10_000)
    assert queue.purge() == 10_000
    assert (queue.ready_count, queue.purging) == (0, True)
    push(queue, b"new")
    while queue.purging:
        assert account.by_kind["staged"] > 0
        queue.maintain(clock.now())
    assert ready(queue) == [b"new"]
    assert account.by_kind["staged"] == 0
    assert account.total == queue.memory


def test_messages_that_return_out_of_order_take_their_places(queue: ClassicQueue) -> None:
    push(queue, *[b"%d" % number for number in range(20)])
    held = queue.take(10)
    for place in (3, 9, 0, 5, 1, 2, 8, 4, 7, 6):
        queue.settle([held[place]], Outcome.REQUEUED)
    assert [one.seq for one in queue.peek(0, 99)] == list(range(1, 21))
    assert [one.seq for one in queue.take(4)] == [1, 2, 3, 4]
    assert [one.seq for one in queue.take_range(6, 12, 99)] == [6, 7, 8, 9, 10, 11, 12]
    assert [one.seq for one in queue.take(99)] == [5, *range(13, 21)]


def test_nothing_is_delivered_while_messages_return_in_steps(queue: ClassicQueue) -> None:
    push(queue, *[b"%d" % number for number in range(6)])
    held = queue.take(6)
    queue.begin_return()
    queue.settle([held.pop()], Outcome.REQUEUED)
    taker = Taker(queue, prefetch=1).start()
    assert taker.bodies == []
    assert not queue.knows_next
    queue.settle(held, Outcome.REQUEUED)
    queue.end_return()
    assert queue.knows_next
    assert taker.bodies == [b"0"]


def test_while_many_expire_in_steps_it_is_not_known_what_comes_next() -> None:
    queue = make_queue()
    dying = [message(b"x") for _ in range(3 * STEP)]
    for one in dying:
        one.expires_at = clock.now() + 0.2
    queue.expect_expiry()
    queue.push(dying)
    push(queue, b"stays")
    time.sleep(0.2)
    assert not queue.knows_next
    assert not queue.knows_next
    assert queue.knows_next
    assert [one.body for one in queue.take(1)] == [b"stays"]


def test_what_may_die_later_stays_while_dead_letters_wait() -> None:
    dead_letters = DeadLetters()
    queue = make_queue(dead_letters)
    push(queue, *[b"x"] * (3 * STEP))
    dead_letters.behind = True
    queue.set_limits(replace(queue.limits, max_length=10))
    queue.maintain(clock.now())
    assert (dead_letters.found, queue.ready_count) == ([], 3 * STEP)
    dead_letters.behind = False
    while queue.ready_count > 10:
        queue.maintain(clock.now())
    assert len(dead_letters.found) == 3 * STEP - 10
