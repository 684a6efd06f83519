"""Any order of operations on a queue with slots, compared with a model of number lists."""

from pathlib import Path
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.in_memory import directory_in_memory
from tests.queues.consumers import Taker
from tests.store.opened import Opened

from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome, clock
from jumpmq.queues import ready as ready_messages
from jumpmq.queues import tail as tail_of_ready
from jumpmq.queues.base import QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import OVERHEAD, MemoryAccount
from jumpmq.queues.quorum import QuorumQueue
from jumpmq.queues.records import QueueRecords
from jumpmq.queues.slots import slot_of

KEYS = [b"%d" % number for number in range(8)]


class SlotsMachine(RuleBasedStateMachine):
    """The model has, by number, slot and expiry of ready messages, and the slots of held messages."""

    @initialize(
        kind=st.sampled_from([ClassicQueue, QuorumQueue]),
        slots=st.sampled_from([1, 2, 5, 1024]),
        limit=st.sampled_from([0, 1, 3]),
        length=st.sampled_from([None, 6]),
        tight=st.booleans(),
    )
    def begin(self, kind: type[ClassicQueue], slots: int, limit: int, length: int | None, tight: bool) -> None:
        self.folder = directory_in_memory()
        self.opened = Opened(Path(self.folder.name) / "broker")
        self.patched = [patch.object(module, "PAGED_AT_ONCE", 3) for module in (ready_messages, tail_of_ready)]
        for patched in self.patched:
            patched.start()
        self.time = clock.now()
        self.clock = patch.object(clock, "now", lambda: self.time)
        self.clock.start()
        self.kind, self.slots, self.limit, self.length, self.tight = kind, slots, limit, length, tight
        self.published = 0
        self.ready: dict[int, tuple[int, float]] = {}
        self.held: list[Message] = []
        self.queue = self.make()

    def make(self) -> ClassicQueue:
        arguments = {"x-slots": self.slots}
        arguments |= {"x-in-flight-per-slot": self.limit} if self.limit else {}
        arguments |= {"x-max-length": self.length} if self.length else {}
        account = MemoryAccount(4 * OVERHEAD if self.tight else 1 << 40)
        context = QueueContext(journal=self.opened.store, memory=account)
        queue = self.kind("/", "q", id=7, durable=True, arguments=arguments, context=context)
        queue.restore(self.opened.store.batches().get(7, []), QueueRecords(next_seq=self.published + 1))
        return queue

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.clock.stop()
            for patched in self.patched:
                patched.stop()
            self.opened.close()
            self.folder.cleanup()

    # --- the model ---

    def held_of(self, slot: int) -> list[int]:
        return [one.seq - 1 for one in self.held if one.slot == slot]

    def expire(self) -> None:
        """Expire messages at the front of their slots only."""
        for slot in {slot for slot, _ in self.ready.values()}:
            for number in sorted(number for number in self.ready if self.ready[number][0] == slot):
                if not 0 < self.ready[number][1] <= self.time:
                    break
                del self.ready[number]

    def shorten(self) -> None:
        while self.length is not None and len(self.ready) > self.length:
            del self.ready[min(self.ready)]

    # --- what may happen ---

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12), lives=st.sampled_from([0, 0, 0, 5, 20]))
    def publish(self, keys: list[bytes], lives: float) -> None:
        messages = []
        for key in keys:
            message = Message("", key, b"\x10\x00\x02", b"%d" % self.published, True, 1.0)
            if lives:
                message.expires_at = self.time + lives
                self.queue.expect_expiry()
            messages.append(message)
            self.ready[self.published] = (slot_of(key, self.slots), message.expires_at)
            self.published += 1
        self.queue.push(messages)
        self.queue.trim(self.time)
        self.expire()
        self.shorten()
        self.expire()  # a next message in the slot may have expired

    @rule(count=st.integers(1, 12))
    def get(self, count: int) -> None:
        self.queue.trim(self.time)
        self.expire()
        taken = self.queue.take(count)
        for message in taken:
            number = message.seq - 1
            slot, expires_at = self.ready.pop(number)
            assert message.slot == slot
            assert not 0 < expires_at <= self.time
            alive = [one for one, (place, at) in self.ready.items() if place == slot and not 0 < at <= self.time]
            assert not alive or number < min(alive)
            self.held.append(message)
            assert not self.limit or len(self.held_of(slot)) <= self.limit
        self.expire()
        if len(taken) < count:  # the rest is blocked, or has expired
            for slot, expires_at in self.ready.values():
                assert 0 < expires_at <= self.time or (self.limit and len(self.held_of(slot)) >= self.limit)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.ACKNOWLEDGED, Outcome.REJECTED]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        place = data.draw(st.integers(0, len(self.held) - 1))
        self.queue.settle([self.held.pop(place)], outcome)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.REQUEUED, Outcome.CONSUMER_GONE]))
    def give_back(self, data: st.DataObject, outcome: Outcome) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.held) - 1), min_size=1))
        back = [self.held[place] for place in places]
        self.held = [one for place, one in enumerate(self.held) if place not in places]
        for message in back:
            self.ready[message.seq - 1] = (message.slot, message.expires_at)
        self.queue.settle(back, outcome)
        self.queue.trim(self.time)
        self.expire()
        self.shorten()
        self.expire()  # a next message in the slot may have expired

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()

    @rule()
    def page(self) -> None:
        if self.tight:
            self.opened.commit()
            self.queue.page_out(0)
            self.queue.taken.page(self.held)

    @precondition(lambda self: not self.limit)
    @rule(count=st.integers(1, 8))
    def reserve(self, count: int) -> None:
        self.queue.trim(self.time)
        self.expire()
        taken = self.queue.take_range(1, 1 << 40, count)
        numbers = [message.seq - 1 for message in taken]
        alive = [one for one, (_, at) in sorted(self.ready.items()) if not 0 < at <= self.time]
        assert numbers == alive[: len(numbers)]
        for message in taken:
            del self.ready[message.seq - 1]
        self.held += taken

    @rule()
    def consume_and_crash(self) -> None:
        taker = Taker(self.queue, 4).start()
        lent = {one.seq - 1: self.ready.pop(one.seq - 1) for one in taker.held}
        self.expire()  # meanwhile the messages behind the delivered ones are at the front
        self.ready |= lent
        taker.give_back()
        self.queue.trim(self.time)
        self.expire()
        self.shorten()
        self.expire()  # a next message in the slot may have expired

    @rule()
    def restart(self) -> None:
        for message in self.queue.taken.readable(self.held):
            self.ready[message.seq - 1] = (message.slot or slot_of(message.routing_key, self.slots), message.expires_at)
        self.held = []
        self.queue.checkpoint()
        self.opened.commit()
        self.opened.restart()
        self.queue = self.make()
        self.queue.trim(self.time)
        self.expire()
        self.shorten()

    @invariant()
    def is_as_the_model(self) -> None:
        if not hasattr(self, "folder"):
            return
        assert self.queue.ready_count >= len(self.ready)
        queue_slots = self.queue.slots
        assert queue_slots is not None
        unacknowledged = {one.slot: one.unacknowledged for one in queue_slots.states.figures() if one.unacknowledged}
        assert unacknowledged == {slot: len(self.held_of(slot)) for slot in {one.slot for one in self.held}}


SlotsMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestSlots = SlotsMachine.TestCase
