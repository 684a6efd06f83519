"""Unacknowledged deliveries, compared with a plain dictionary."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.generating import examples
from tests.queues.consumers import message

from jumpmq.amqp.messages import Message
from jumpmq.broker.channel import deliveries
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, PAGED, PARKED

TAGS = st.integers(1, 200)


def delivered(queue: ClassicQueue, tag: int) -> Message:
    """Return a message with the number and the tag equal."""
    one = message(b"%d" % tag)
    one.queue, one.seq, one.redelivered = queue, tag, tag % 3 == 0
    return one


def paged(messages: list[Message], octets: int = 10) -> None:
    for one in messages:
        one.body, one.paged = PAGED, octets


def seen(messages: list[Message]) -> list[tuple[int, bool]]:
    return [(one.seq, one.redelivered) for one in messages]


class Held(RuleBasedStateMachine):
    """Pieces of a few tags, so that few deliveries fill many pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.constants = deliveries.BITS, deliveries.WORTH_PARKING
        deliveries.BITS, deliveries.WORTH_PARKING = 3, 2
        self.queue = ClassicQueue("/", "q", id=1)
        self.held = Deliveries()
        self.model: dict[int, tuple[int, bool]] = {}
        self.next = 1

    def teardown(self) -> None:
        deliveries.BITS, deliveries.WORTH_PARKING = self.constants

    @rule(count=st.integers(0, 30))
    def deliver(self, count: int) -> None:
        messages = [delivered(self.queue, self.next + place) for place in range(count)]
        self.held.add(self.next, messages)
        self.model |= dict(enumerate(seen(messages), self.next))
        self.next += count

    @rule(dropped=st.integers(0, 20))
    def park(self, dropped: int) -> None:
        """The bodies of the first are on disk."""
        paged([one for some in self.held.unparked(3) for one in some][:dropped])
        for _ in self.held.park():
            pass

    @rule(tags=st.lists(TAGS, max_size=10))
    def claim(self, tags: list[int]) -> None:
        found = []
        for tag in tags:
            if tag not in self.model:
                break
            found.append(self.model.pop(tag))
        assert seen(self.held.claim(tags)) == found

    @rule(tag=st.integers(0, 200), put_back=st.booleans())
    def take_upto(self, tag: int, put_back: bool) -> None:
        taken = self.held.take_upto(tag)
        expected = {one: held for one, held in self.model.items() if one <= tag or not tag}
        assert len(taken) == len(expected)
        if put_back:
            self.held.put_back(taken)
            assert not taken
        else:
            assert [(tag, *seen([one])) for tag, one in taken.items()] == list(expected.items())
            self.model = {one: held for one, held in self.model.items() if one not in expected}

    @invariant()
    def they_are_the_same(self) -> None:
        assert len(self.held) == len(self.model)
        assert all(tag in self.held for tag in self.model)
        assert self.next not in self.held
        assert self.held.first_tag == next(iter(self.model), None)
        parked = len(self.model) - sum(map(len, self.held.unparked(3)))
        assert self.queue.memory == parked * (PARKED - OVERHEAD - len(PAGED))


TestHeld = Held.TestCase
TestHeld.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


def filled(count: int) -> Deliveries:
    held = Deliveries()
    held.add(1, [message(b"%d" % number) for number in range(1, count + 1)])
    return held


def test_all_leave_in_order_or_the_last_first_some_at_a_time() -> None:
    forwards = list(filled(10_000).forwards())
    backwards = list(filled(10_000).backwards())[::-1]
    for steps in (forwards, backwards):
        assert [int(one.body) for some in steps for one in some] == list(range(1, 10_001))
        assert len(steps) == 3


def test_those_whose_bodies_are_on_disk_leave_in_smaller_steps() -> None:
    for steps in (Deliveries.forwards, Deliveries.backwards):
        held = filled(100)
        for some in held.unparked(100):
            paged(some, octets=1 << 15)
        assert [len(some) for some in steps(held)] == [32, 32, 32, 4]
