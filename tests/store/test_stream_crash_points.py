"""After a crash at any moment, with any unsynced writes missing or torn, streams have the state of a commit.

Exactly: all confirmed rows are there, no row twice, and no part of an incomplete commit, whichever of the
log, the index and the streams' files reached the disk. Later rows follow. Queues and streams of one turn
share their fate: a settled message, or the resulting row of a stream, exists in exactly one of the two.
"""

import contextlib
import errno
import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.in_memory import directory_in_memory
from tests.store.crashes import Failing, Recorder, SimulatedDisk
from tests.store.stream_crash_points import SEGMENT, STEPS, Workload
from tests.store.stream_opened import Opened, bodies, message

from jumpmq.store import StoreError
from jumpmq.store.errors import Unsynced

POINTS = 40
"""Number of crashes tried for each workload."""


UNHURRIED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # shrinking would take minutes
)


@settings(UNHURRIED, max_examples=examples(12))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_a_crash_leaves_the_state_of_a_commit(steps: list[tuple[int, int, int, str]], seed: int) -> None:
    crash_everywhere(steps, Random(seed), Recorder())


@pytest.mark.slow
@settings(UNHURRIED, max_examples=examples(12))
@given(steps=STEPS, seed=st.integers(0, 1 << 30), rate=st.sampled_from([0.01, 0.05]))
def test_so_does_one_after_errors_of_the_disk(steps: list[tuple[int, int, int, str]], seed: int, rate: float) -> None:
    crash_everywhere(steps, Random(seed), Failing(Random(seed), rate, errno.EIO))


def crash_everywhere(steps: list[tuple[int, int, int, str]], chance: Random, recorder: Recorder) -> None:
    """Record a workload, and check possible states after crashes."""
    with directory_in_memory() as name:
        rate, directory = getattr(recorder, "rate", 0.0), Path(name) / "broker"
        recorder.rate = 0.0  # type: ignore[attr-defined]
        workload = Workload(directory, recorder)
        workload.opened.commit()
        recorder.rate = rate  # type: ignore[attr-defined]
        with contextlib.suppress(Unsynced):  # the process would end
            workload.run(steps)
        calls = list(recorder.calls)
        recorder.rate = 0.0  # type: ignore[attr-defined]
        try:
            workload.opened.close()
        except (StoreError, OSError):
            assert rate
        points = set(chance.sample(range(len(calls) + 1), min(POINTS, len(calls))))
        disk = SimulatedDisk(workload.index, chance)
        for place, call in enumerate([*calls, None]):
            if place in points:
                crashed = Path(name) / f"crash at {place}"
                disk.crash(crashed, chance)
                require_state(crashed, workload, disk.committed, f"crash before call {place}")
                shutil.rmtree(crashed)
            if call is not None:
                disk.take(call)


def require_state(directory: Path, workload: Workload, committed: int, where: str) -> None:
    first = max(one for one in workload.states if one <= committed)  # a commit that only moves messages has no state
    allowed = [state for receipt, state in workload.states.items() if receipt >= first]
    before: tuple[int, int, list[int]] | None = None
    for more in (0, 2):
        opened = Opened(directory, segment_bytes=SEGMENT)
        try:
            logs = opened.log, opened.files.open(8)
            batches = opened.store.batches().get(1, [])
            seqs = [one.seq for batch in batches for one in opened.store.read(batch)]
            found = logs[0].end, logs[1].end, seqs
            assert not opened.losses, (where, opened.losses)
            assert found in ([before] if before else allowed), (where, found, allowed[:2])
            for log in logs:
                assert bodies(log) == list(range(log.first, log.end)), where
                opened.files.append(log, [message(log.end + number) for number in range(more)])
            opened.commit()
            for log in logs:
                assert bodies(log) == list(range(log.first, log.end)), where
            before = found
        finally:
            opened.close(clean=more > 0)
