"""Deliveries that await their acknowledgement, against a plain dictionary."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.queues.consumers import message

from jumpmq.broker import deliveries
from jumpmq.broker.deliveries import Deliveries
from jumpmq.queues.memory import PAGED

TAGS = st.integers(1, 200)


class Held(RuleBasedStateMachine):
    """Pieces of a few tags each, so that few deliveries lie in many."""

    def __init__(self) -> None:
        super().__init__()
        self.bits, deliveries.BITS = deliveries.BITS, 3
        self.held = Deliveries()
        self.model: dict[int, object] = {}
        self.next = 1

    def teardown(self) -> None:
        deliveries.BITS = self.bits

    @rule(count=st.integers(0, 30))
    def deliver(self, count: int) -> None:
        messages = [message(b"%d" % (self.next + place)) for place in range(count)]
        self.held.add(self.next, messages)
        self.model |= dict(enumerate(messages, self.next))
        self.next += count

    @rule(tags=st.lists(TAGS, max_size=10))
    def claim(self, tags: list[int]) -> None:
        found = []
        for tag in tags:
            if tag not in self.model:
                break
            found.append(self.model.pop(tag))
        assert self.held.claim(tags) == found

    @rule(tag=st.integers(0, 200), put_back=st.booleans())
    def take_upto(self, tag: int, put_back: bool) -> None:
        taken = self.held.take_upto(tag)
        expected = {one: held for one, held in self.model.items() if one <= tag or not tag}
        assert list(taken.items()) == list(expected.items())
        assert len(taken) == len(expected)
        if put_back:
            self.held.put_back(taken.items())
        else:
            self.model = {one: held for one, held in self.model.items() if one not in expected}

    @invariant()
    def they_are_the_same(self) -> None:
        assert list(self.held.items()) == list(self.model.items())
        assert len(self.held) == len(self.model)
        assert all(tag in self.held for tag in self.model)
        assert self.next not in self.held
        assert [one for some in self.held.look_at(3) for one in some] == list(self.model.values())


TestHeld = Held.TestCase
TestHeld.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


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
    held = filled(100)
    for some in held.look_at(100):
        for one in some:
            one.body = PAGED
    assert [len(some) for some in held.backwards()] == [32, 32, 32, 4]
