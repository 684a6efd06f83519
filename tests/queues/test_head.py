"""The front of a queue and the lane of a slot, compared with a plain list; runs of three messages."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.generating import examples
from tests.queues.consumers import message

from jumpmq.amqp.messages import Message
from jumpmq.queues import head
from jumpmq.queues._lanes import Lane


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "RUN", 3)


class Front(RuleBasedStateMachine):
    """Messages taken at either end, put back, expired or peeked."""

    made_by: type[head.Head] | type[Lane] = head.Head

    def __init__(self) -> None:
        super().__init__()
        self.head = self.made_by()
        self.messages: list[Message] = []
        self.next_seq = 1000

    def made(self, count: int) -> list[Message]:
        messages = [message(b"") for _ in range(count)]
        for one in messages:
            one.seq = self.next_seq
            one.expires_at = float(one.seq)
            self.next_seq += 2
        return messages

    @rule(count=st.integers(0, 10))
    def extend(self, count: int) -> None:
        messages = self.made(count)
        self.head.extend(messages)
        self.messages += messages

    @rule(count=st.integers(0, 10), kept=st.integers(0, 10))
    def take_and_put_some_back(self, count: int, kept: int) -> None:
        taken = self.head.take(count)
        assert taken == self.messages[:count]
        self.head.put_first(taken[kept:])
        self.messages = taken[kept:] + self.messages[count:]

    @rule(count=st.integers(0, 10))
    def take_last(self, count: int) -> None:
        cut = max(0, len(self.messages) - count)
        assert self.head.take_last(count) == self.messages[cut:]
        del self.messages[cut:]

    @rule(until=st.integers(0, 10), count=st.integers(0, 10))
    def take_expired(self, until: int, count: int) -> None:
        now = self.messages[min(until, len(self.messages)) - 1].expires_at if until and self.messages else 1.0
        expected = [one for one in self.messages if one.expires_at <= now][:count]
        assert self.head.take_expired(now, count) == expected
        del self.messages[: len(expected)]

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), count=st.integers(0, 10))
    def take_range(self, data: st.DataObject, count: int) -> None:
        first = data.draw(st.integers(self.messages[0].seq - 2, self.messages[-1].seq))
        last = data.draw(st.integers(first, self.messages[-1].seq + 2))
        expected = [one for one in self.messages if first <= one.seq <= last][:count]
        assert self.head.take_range(first, last, count) == expected
        self.messages = [one for one in self.messages if one not in expected]

    @rule(count=st.integers(60, 300), taken=st.integers(0, 300))
    def extend_by_many(self, count: int, taken: int) -> None:
        self.extend(count)
        assert self.head.take(taken) == self.messages[:taken]
        del self.messages[:taken]

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(self.messages[0].seq - 1, self.messages[-1].seq))
        at_once = self.head.fitting(seq)
        assert all(one.seq <= seq for one in self.messages[:at_once])
        assert at_once or seq < self.messages[0].seq
        behind = [one for one in self.messages if one.seq >= seq]
        found = self.head.since(seq)
        assert found and found == behind[: len(found)]

    @invariant()
    def ends(self) -> None:
        assert self.head.count == len(self.messages)
        if self.messages:
            assert (self.head.first, self.head.last) == (self.messages[0], self.messages[-1])


class LaneFront(Front):
    """The rules of Front, applied to a lane."""

    made_by = Lane


TestFront = Front.TestCase
TestLaneFront = LaneFront.TestCase
TestFront.settings = TestLaneFront.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
