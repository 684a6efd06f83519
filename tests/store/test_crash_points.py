"""A crash at any moment, with any of the writes since the last sync missing or torn, leaves the state of a commit.

Exactly that: every turn that was confirmed and none in part, in order, nothing back that was settled. So no message is
lost between a queue and the one that it is dead-lettered to, and none is in both.
"""

import errno
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.store.crashes import Failing, Recorder, SimulatedDisk
from tests.store.lagging import Lagging
from tests.store.opened import Opened, make_messages

from jumpmq.amqp.messages import Message
from jumpmq.store import upkeep
from jumpmq.store.completion import Completion
from jumpmq.store.files import Files
from jumpmq.store.lineage import Stretch, read_lineage
from jumpmq.store.records import OPENING_SIZE
from jumpmq.store.recovery import Recovery

SEGMENT, COMMIT = 16 << 10, 4 << 10
POINTS = 60
"""Crashes that are tried for each workload."""


@pytest.fixture(autouse=True, scope="module")
def few_definitions() -> Iterator[None]:
    """Few definitions are many here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MANY_DEFINITIONS", 2)
        patch.setattr(upkeep, "QUIET", 0.0)
        yield


State = tuple[dict[str, Any], dict[int, list[tuple[int, bytes]]]]


class Workload:
    """What a broker does to its store, and the state that each commit stands for."""

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
        """The state that a commit stands for, and those of later ones."""
        first = max(one for one in self.states if one <= receipt)  # a commit that only moves messages has no state
        return [state for one, state in self.states.items() if one >= first]

    # What a turn consists of; ``queue`` and ``number`` are small numbers that hypothesis chose.

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
        """The oldest, or every second."""
        gone = self.queues[queue][: 1 + number] if number % 2 else self.queues[queue][::2]
        self._settle(queue, gone)

    def thin_out(self, queue: int, number: int) -> None:
        """All but a few, and let the rest be moved to another segment."""
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
        """Dead-letter the oldest: some may not be written yet."""
        self._bury(queue, self.queues[queue][: 1 + number])

    def overflow(self, queue: int, number: int) -> None:
        """Publish to a queue of limited length, which dead-letters at once what is too much."""
        self.publish(queue, number)
        self._bury(queue, self.queues[queue][:-2])

    def _bury(self, queue: int, messages: list[Message]) -> None:
        if messages:
            self._append(queue % 3 + 1, [b"dead " + message.body for message in messages])
            self._settle(queue, messages)

    def transact(self, queue: int, number: int) -> None:
        """Consume from one queue and publish to the others."""
        self.acknowledge(queue, number)
        for other in self.queues:
            self.publish(other, number)

    def reserve(self, queue: int, number: int) -> None:
        """Note what a group of readers has done, and settle it."""
        key = f"{queue} group"
        self.definitions[key] = number
        self.opened.store.put("reservation", key, number)
        self.acknowledge(queue, number)

    def purge(self, queue: int, number: int) -> None:
        for batch in {message.batch: None for message in self.queues[queue]}:
            batch.settle_all()
        self.queues[queue] = []

    def delete(self, queue: int, number: int) -> None:
        """Delete a queue and declare it anew: the other has another number in the store."""
        self.opened.store.drop_queue(self.ids[queue])
        self.opened.store.delete("reservation", f"{queue} group")
        self.definitions.pop(f"{queue} group", None)
        self.ids[queue] += 3
        self.queues[queue], self.next_seq[queue] = [], 1

    def index(self, queue: int, number: int) -> None:
        """Go on in another segment, so that the index takes the definitions."""
        self.opened.store.index_definitions()

    def commit(self, queue: int, number: int) -> None:
        """Let the disk catch up."""
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
    """What a broker finds that starts there; so does the one after it, and neither misses anything."""
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
        opened.store.put("start", "last", 1)  # so that the end writes the index
    finally:
        opened.store.close()
    definitions.pop("last", None)
    return definitions, content


def same_end(directory: Path) -> None:
    """A lineage, which is read by itself, ends where a start finds the log to end, but for segments without a commit
    behind one that was torn.
    """
    found = Recovery(directory, Files(), lambda settled: None, without_index=True).segments
    expected = tuple(Stretch(one.number, one.epoch, one.salt, one.end) for one in found)
    read = read_lineage(directory)
    assert read.lineage == expected[: len(read.lineage)] and not read.damaged
    assert all(one.end == OPENING_SIZE for one in expected[len(read.lineage) :])


def difference(found: State, expected: State) -> str:
    """What is too much and what is missing."""
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
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # it would take minutes
)


@settings(UNHURRIED, max_examples=examples(25))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_a_crash_leaves_the_state_of_a_commit(steps: list[Any], seed: int) -> None:
    crash_everywhere(steps, Random(seed), Recorder(), ahead=3)


@pytest.mark.slow
@settings(UNHURRIED, max_examples=examples(15))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_so_does_one_where_completion_lags(steps: list[Any], seed: int) -> None:
    """More may be there then than was complete."""
    chance = Random(seed)
    crash_everywhere(steps, chance, Recorder(), ahead=None, completion=lambda: Lagging(chance))


@pytest.mark.slow
@settings(UNHURRIED, max_examples=examples(10))
@given(steps=STEPS, seed=st.integers(0, 1 << 30), rate=st.sampled_from([0.01, 0.05, 0.2]))
def test_so_does_one_after_errors_of_the_disk(steps: list[Any], seed: int, rate: float) -> None:
    """All that was staged by the next attempt is one commit then."""
    crash_everywhere(steps, Random(seed), Failing(Random(seed), rate, errno.EIO), ahead=None)


def crash_everywhere(
    steps: list[Any],
    chance: Random,
    recorder: Recorder,
    ahead: int | None,
    completion: Callable[[], Completion] | None = None,
) -> None:
    """Record a workload, and look at what crashes during it leave.

    Args:
        ahead: how many commits may be on disk that were not reported; None for any number.
    """
    with tempfile.TemporaryDirectory() as name:
        workload = Workload(Path(name) / "broker", recorder, completion)
        for action, queue, number in steps:
            action(workload, queue, number)
            match chance.random():
                case drawn if drawn < 0.7:
                    workload.end_turn()
                case drawn if drawn < 0.9:
                    workload.opened.store.part()
        workload.end_turn()
        workload.opened.commit()
        calls = list(workload.disk.calls)
        if isinstance(recorder, Failing):
            recorder.rate = 0.0
        workload.opened.close()
        points = sorted(chance.sample(range(len(calls) + 1), min(POINTS, len(calls))))
        disk = SimulatedDisk(workload.first_index, chance)
        for place, call in enumerate([*calls, None]):
            if place in points:
                directory = Path(name) / f"crash at {place}"
                disk.crash(directory, chance)
                if place % 4 == 0:
                    same_end(directory)
                found = found_in(directory)
                allowed = workload.states_from(disk.committed)[:ahead]
                where = f"crash before call {place}, commit {disk.committed}"
                assert found in allowed, f"{where}: {difference(found, allowed[0])}"
                shutil.rmtree(directory)
            if call is not None:
                disk.take(call)
