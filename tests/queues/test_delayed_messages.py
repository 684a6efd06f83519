"""Delayed messages are delivered when due, in order, for any delays and any times of maintenance."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues import Queue, clock
from jumpmq.queues.base import NoDeadLettering, QueueContext
from jumpmq.queues.delayed import DUE, DelayedQueue
from jumpmq.queues.delayed_messages import DelayedMessages
from jumpmq.queues.delays import delay_of, negated
from jumpmq.queues.memory import MemoryAccount

FINE = 0.016
"""Seconds of the smallest window: the largest lateness, and the largest error in the order."""
DELAYS = st.one_of(st.floats(0.001, 1), st.floats(0.001, 100), st.floats(0.001, 2**32 / 1000))


def delayed() -> DelayedMessages:
    return DelayedMessages(None, lambda messages: None, MemoryAccount(), lambda: None)


def message(seq: int, due: float) -> Message:
    made = Message("e", b"k", b"\0\0", b"%d" % seq)
    made.seq, made.expires_at = seq, due
    return made


def drained(queue: DelayedMessages, now: float) -> list[Message]:
    """Return all due messages, taken as a queue takes them: in steps, until nothing is due."""
    found = []
    while queue.first_expiry() and queue.first_expiry() <= now:
        found += queue.take_expired(now, 7)
    return found


@given(st.lists(st.lists(DELAYS, max_size=30), max_size=5), st.lists(st.floats(0, 2**32 / 1000), max_size=8))
def test_each_comes_once_when_it_is_due_and_in_order(pushes: list[list[float]], looks: list[float]) -> None:
    queue, held, began, seq = delayed(), dict[int, float](), clock.now(), 0
    for delays in pushes:
        run = []
        for delay in delays:
            seq += 1
            held[seq] = began + delay
            run.append(message(seq, began + delay))
        queue.extend(run, sum(len(one.body) for one in run))
    assert len(queue) == len(held)
    before = 0.0
    for now in sorted(began + look for look in [*looks, 2**32 / 1000 + 1]):
        taken = drained(queue, now)
        for one in taken:
            due = held.pop(one.seq)
            assert before - FINE <= due <= now
            before = max(before, due)
        assert not [due for due in held.values() if due <= now - FINE]
        assert len(queue) == len(held)
        assert queue.size == sum(len(b"%d" % number) for number in held)
    assert not held
    assert not queue.first_expiry()
    assert not queue.memory


def test_few_windows_are_needed_for_delays_of_weeks() -> None:
    queue, began = delayed(), clock.now()
    queue.extend([message(seq, began + 1 + seq * 4.0) for seq in range(1_000_000 // 100)], 0)
    assert len(queue._windows) < 1500
    assert [one.seq for one in drained(queue, began + 60)] == list(range(15))


def test_what_is_put_among_others_while_a_window_is_emptied_keeps_its_place() -> None:
    queue, began = delayed(), clock.now()
    dues = [began + 100 + random.random() for _ in range(3000)]
    queue.extend([message(seq, due) for seq, due in enumerate(dues)], 0)
    queue.take_expired(began + 99, 10)  # a step of emptying the window
    queue.put_back([message(9000 + place, began + 100 + place / 10) for place in range(10)])
    found = drained(queue, began + 200)
    assert len(found) == 3010
    assert all(one.expires_at <= other.expires_at + FINE for one, other in pairwise(found))


@pytest.mark.parametrize(
    ("kind", "value", "delay"),
    [
        ("I", 1, 1),
        ("l", 2**32 - 1, 2**32 - 1),
        ("l", 2**32, 0),
        ("I", 0, 0),
        ("I", -5, 0),
        ("b", 100, 100),
        ("s", 300, 300),
        ("S", "250", 250),
        ("S", "+250", 250),
        ("S", "", 0),
        ("S", "soon", 0),
        ("S", "1e3", 0),
        ("S", "٣", 0),
        ("S", "9" * 400, 0),
        ("d", 12.9, 12),
        ("d", float("inf"), 0),
        ("d", float("nan"), 0),
        ("D", (1, 55), 5),
        ("D", (255, 1), 0),
        ("t", True, 0),
        ("V", None, 0),
        ("T", 5, 0),
        ("A", [("I", 5)], 0),
    ],
)
def test_what_delays_and_what_does_not(kind: str, value: object, delay: int) -> None:
    headers = [Field("a", "S", "x-delay"), Field("x-delay", kind, value)]
    sent = Message("e", b"k", Properties(headers=headers).encode(), b"")
    assert delay_of(sent) == delay
    if delay:
        back = negated(headers)
        assert back[1].value == -delay
        assert delay_of(Message("e", b"k", Properties(headers=back).encode(), b"")) == 0


def test_a_header_of_another_name_or_a_malformed_table_delays_nothing() -> None:
    assert delay_of(Message("e", b"k", Properties(headers=[Field("x-delays", "I", 5)]).encode(), b"")) == 0
    assert delay_of(Message("e", b"k", b"\x20\x00\x00\x00\x00\x0d\x07x-delay?\x00\x00\x00\x05", b"")) == 0


class Passed(NoDeadLettering):
    """Records messages that left a queue, and the reasons."""

    def __init__(self) -> None:
        self.left: list[tuple[int, str]] = []

    def publish(self, queue: Queue, messages: list[Message], reason: str) -> None:
        self.left += [(one.seq, reason) for one in messages]


def test_what_is_due_while_a_queue_moves_is_no_dead_letter() -> None:
    """A message due during a move is not dead-lettered, next to a message in the same window that is not due."""
    passed = Passed()
    context = QueueContext(dead_letters=passed)
    queue = DelayedQueue("/", "amq.delayed.e", id=1, arguments={"x-dead-letter-exchange": "e"}, context=context)
    taken = []
    for _ in range(50):
        now = clock.now()
        queue.push_ahead([message(0, now), message(0, now + 0.008)])
        taken += queue.take_for_delivery(10)
    while queue.message_count > queue.unacknowledged_count:
        queue.trim(clock.now())
    assert {reason for _, reason in passed.left} <= {DUE}
    assert sorted([one.seq for one in taken] + [seq for seq, _ in passed.left]) == list(range(1, 101))
