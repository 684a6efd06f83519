"""Generated work of a store with queues, and the state of each commit."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.store.crashes import Recorder
from tests.store.opened import Opened, make_messages

from jumpmq.amqp.messages import Message
from jumpmq.store.completion import Completion

SEGMENT, COMMIT = 16 << 10, 4 << 10

State = tuple[dict[str, Any], dict[int, list[tuple[int, bytes]]]]


class Workload:
    """A broker's work on a store, and the expected state after every commit."""

    def __init__(
        self,
        directory: Path,
        disk: Recorder | None = None,
        completion: Callable[[], Completion] | None = None,
    ) -> None:
        self.disk = Recorder() if disk is None else disk
        self.opened = Opened(directory, self.disk, SEGMENT, COMMIT, completion)
        self.opened.tell = lambda receipt: self.disk.note("committed", receipt)
        self.first_index = (directory / "jumpmq.db").read_bytes()
        self.queues: dict[int, list[Message]] = {1: [], 2: [], 3: []}
        self.next_seq = dict.fromkeys(self.queues, 1)
        self.definitions: dict[str, Any] = {}
        self.states: dict[int, State] = {0: ({}, {})}
        self.ids = {queue: queue for queue in self.queues}

    def end_turn(self) -> None:
        receipt = self.opened.store.flush(waiting=len(self.states) % 3 > 0, begin=False)
        content = {self.ids[queue]: [(one.seq, one.body) for one in held] for queue, held in self.queues.items()}
        self.states[receipt] = (dict(self.definitions), {queue: found for queue, found in content.items() if found})
        self.opened.store.begin(here=receipt % 2 == 0)

    def states_from(self, receipt: int) -> list[State]:
        """Return the state of a commit, and the states of later commits."""
        first = max(one for one in self.states if one <= receipt)  # a commit that only moves messages has no state
        return [state for one, state in self.states.items() if one >= first]

    # Operations of a turn; ``queue`` and ``number`` are small numbers drawn by hypothesis.

    def publish(self, queue: int, number: int) -> None:
        size = (10, 200, 3000)[number % 3]
        self._append(queue, [b"%d " % self.next_seq[queue] + bytes(size) for _ in range(1 + number % 7)])

    def _append(self, queue: int, bodies: list[bytes]) -> None:
        first = self.next_seq[queue]
        messages = make_messages(first, first + len(bodies) - 1, body=lambda seq: bodies[seq - first])
        if len(messages) > 2 and first % 5 == 0:
            del messages[1]  # a transient message between
        self.next_seq[queue] += len(bodies)
        self.opened.store.append(self.ids[queue], messages)
        self.queues[queue] += messages

    def acknowledge(self, queue: int, number: int) -> None:
        """Acknowledge the oldest message, or every second message."""
        gone = self.queues[queue][: 1 + number] if number % 2 else self.queues[queue][::2]
        self._settle(queue, gone)

    def thin_out(self, queue: int, number: int) -> None:
        """Acknowledge all but a few messages, and let the rest move to another segment."""
        self._settle(queue, [one for place, one in enumerate(self.queues[queue]) if place % 8 != number % 8])
        self.end_turn()
        self.opened.commit()
        upkeep = self.opened.store._upkeep
        for _ in range(20):
            upkeep.compact()
            self.opened.store.completed()
            time.sleep(0.001)
        self.opened.commit()

    def _settle(self, queue: int, messages: list[Message]) -> None:
        for message in messages:
            message.batch.settle(message.seq)
        gone = {message.seq for message in messages}
        self.queues[queue] = [message for message in self.queues[queue] if message.seq not in gone]

    def reject(self, queue: int, number: int) -> None:
        """Dead-letter the oldest messages, possibly before they are written."""
        self._bury(queue, self.queues[queue][: 1 + number])

    def overflow(self, queue: int, number: int) -> None:
        """Publish to a queue of limited length, which dead-letters the excess at once."""
        self.publish(queue, number)
        self._bury(queue, self.queues[queue][:-2])

    def _bury(self, queue: int, messages: list[Message]) -> None:
        if messages:
            self._append(queue % 3 + 1, [b"dead " + message.body for message in messages])
            self._settle(queue, messages)

    def transact(self, queue: int, number: int) -> None:
        """Consume from a queue and publish to the remaining queues."""
        self.acknowledge(queue, number)
        for other in self.queues:
            self.publish(other, number)

    def reserve(self, queue: int, number: int) -> None:
        """Record a reader group's work, and settle the messages."""
        key = f"{queue} group"
        self.definitions[key] = number
        self.opened.store.put("reservation", key, number)
        self.acknowledge(queue, number)

    def purge(self, queue: int, number: int) -> None:
        for batch in {message.batch: None for message in self.queues[queue]}:
            batch.settle_all()
        self.queues[queue] = []

    def delete(self, queue: int, number: int) -> None:
        """Delete and redeclare a queue; the store assigns a new number."""
        self.opened.store.drop_queue(self.ids[queue])
        self.opened.store.delete("reservation", f"{queue} group")
        self.definitions.pop(f"{queue} group", None)
        self.ids[queue] += 3
        self.queues[queue], self.next_seq[queue] = [], 1

    def index(self, queue: int, number: int) -> None:
        """Begin a new segment, so that the index receives the definitions."""
        self.opened.store.index_definitions()

    def commit(self, queue: int, number: int) -> None:
        """Wait for the disk."""
        self.end_turn()
        self.opened.commit()
        self.opened.store.completed()


ACTIONS: list[Callable[[Workload, int, int], None]] = [
    Workload.publish,
    Workload.publish,
    Workload.acknowledge,
    Workload.acknowledge,
    Workload.reject,
    Workload.overflow,
    Workload.transact,
    Workload.reserve,
    Workload.thin_out,
    Workload.purge,
    Workload.delete,
    Workload.index,
    Workload.commit,
    Workload.commit,
]

STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 3), st.integers(0, 9)), min_size=40, max_size=120)


def found_in(directory: Path) -> State:
    """The state found by a broker's start in a directory, and again by a second start."""
    first, again = _found_in(directory), _found_in(directory)
    assert first == again, f"after a clean stop: {difference(again, first)}"
    return first


def _found_in(directory: Path) -> State:
    opened = Opened(directory)
    try:
        assert not opened.store.losses, opened.store.losses.listed()
        definitions = {key: value for _, key, value in opened.store.definitions()}
        content = {
            queue: [(one.seq, one.body) for batch in batches for one in opened.store.read(batch)]
            for queue, batches in opened.store.batches().items()
        }
        assert not opened.store.losses, opened.store.losses.listed()
        opened.store.put("start", "last", 1)  # so that the stop writes the index
    finally:
        opened.store.close()
    definitions.pop("last", None)
    return definitions, content


def difference(found: State, expected: State) -> str:
    """Return the surplus and the missing messages."""
    queues = sorted({*found[1], *expected[1]})
    return ", ".join(
        f"queue {queue}: found {[seq for seq, _ in found[1].get(queue, [])]}, "
        f"expected {[seq for seq, _ in expected[1].get(queue, [])]}"
        for queue in queues
        if found[1].get(queue) != expected[1].get(queue)
    )


UNHURRIED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # shrinking would take minutes
)
