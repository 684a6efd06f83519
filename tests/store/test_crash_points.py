"""After a crash at any moment, with any unsynced writes missing or torn, the store has the state of a commit.

Exactly: every confirmed turn is whole, in order, and no settled message returns. No message is lost between a
queue and its dead-letter queue, and no message is in both.
"""

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.in_memory import directory_in_memory
from tests.store.crash_points import STEPS, UNHURRIED, Workload, difference, found_in
from tests.store.crashes import Failing, Recorder, SimulatedDisk
from tests.store.lagging import Lagging

from jumpmq.store import upkeep
from jumpmq.store.completion import Completion
from jumpmq.store.files import Files
from jumpmq.store.lineage import Stretch, read_lineage
from jumpmq.store.records import OPENING_SIZE
from jumpmq.store.recovery import Recovery

POINTS = 60
"""Number of crashes tried for each workload."""


@pytest.fixture(autouse=True, scope="module")
def few_definitions() -> Iterator[None]:
    """Few definitions are many here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MANY_DEFINITIONS", 2)
        patch.setattr(upkeep, "QUIET", 0.0)
        yield


def same_end(directory: Path) -> None:
    """The lineage ends at the log's end as a start finds it, except for empty segments behind a torn segment."""
    found = Recovery(directory, Files(), lambda settled: None, without_index=True).segments
    expected = tuple(Stretch(one.number, one.epoch, one.salt, one.end) for one in found)
    read = read_lineage(directory)
    assert read.lineage == expected[: len(read.lineage)] and not read.damaged
    assert all(one.end == OPENING_SIZE for one in expected[len(read.lineage) :])


@settings(UNHURRIED, max_examples=examples(25))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_a_crash_leaves_the_state_of_a_commit(steps: list[Any], seed: int) -> None:
    crash_everywhere(steps, Random(seed), Recorder(), ahead=3)


@pytest.mark.slow
@settings(UNHURRIED, max_examples=examples(15))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_so_does_one_where_completion_lags(steps: list[Any], seed: int) -> None:
    """With delayed completion, incomplete commits may be on disk, too."""
    chance = Random(seed)
    crash_everywhere(steps, chance, Recorder(), ahead=None, completion=lambda: Lagging(chance))


@pytest.mark.slow
@settings(UNHURRIED, max_examples=examples(10))
@given(steps=STEPS, seed=st.integers(0, 1 << 30), rate=st.sampled_from([0.01, 0.05, 0.2]))
def test_so_does_one_after_errors_of_the_disk(steps: list[Any], seed: int, rate: float) -> None:
    """After errors of the disk, the next attempt commits everything staged as one commit."""
    crash_everywhere(steps, Random(seed), Failing(Random(seed), rate, errno.EIO), ahead=None)


def crash_everywhere(
    steps: list[Any],
    chance: Random,
    recorder: Recorder,
    ahead: int | None,
    completion: Callable[[], Completion] | None = None,
) -> None:
    """Record a workload, and check possible states after crashes.

    Args:
        ahead: allowed number of unreported commits on disk; None for any number.
    """
    with directory_in_memory() as name:
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
