"""A crash at any moment, with any of the writes since the last sync missing or torn, leaves a stream's clean prefix.

All that was confirmed is there, in order, and nothing behind the first message that is not; what is then appended
follows it.
"""

import shutil
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.store.crashes import Recorder, SimulatedDisk
from tests.store.stream_opened import Opened, bodies, message

from jumpmq.store import stream_end

POINTS = 60
"""Crashes that are tried for each workload."""

STEPS = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from([10, 300, 2500]), st.booleans()), min_size=5, max_size=30
)


@settings(max_examples=examples(15), deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_a_crash_leaves_a_prefix_with_all_that_was_confirmed(steps: list[tuple[int, int, bool]], seed: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_end, "ALLOCATED_AHEAD", 8 << 10)
        calls, published = recorded(Path(name) / "before", steps)
        points = set(chance.sample(range(len(calls) + 1), min(POINTS, len(calls))))
        disk = SimulatedDisk(b"")
        for place, call in enumerate([*calls, None]):
            if place in points:
                crashed = Path(name) / f"crash at {place}"
                disk.crash(crashed, chance)
                (crashed / "streams").mkdir()
                (crashed / "log").rename(crashed / "streams" / "7")
                require_prefix(crashed / "streams", disk.committed, published)
                shutil.rmtree(crashed)
            if call is not None:
                disk.take(call)


def recorded(directory: Path, steps: list[tuple[int, int, bool]]) -> tuple[list, int]:  # type: ignore[type-arg]
    """What a stream asks of its disk, and how many messages it was given."""
    disk, published = Recorder(), 0
    opened = Opened(directory / "streams", disk)
    opened.log.segment_bytes = 6000
    opened.tell = lambda: disk.note("committed", opened.log.end)
    for count, size, wait in steps:
        opened.files.append(opened.log, [message(published + number, size) for number in range(count)])
        published += count
        opened.files.flush()
        if wait:
            opened.append()
    opened.append()
    calls = list(disk.calls)
    opened.files.close()
    return calls, published


def require_prefix(streams: Path, confirmed: int, published: int) -> None:
    opened = Opened(streams)
    try:
        found = bodies(opened.log)
        assert found == list(range(len(found)))
        assert confirmed <= len(found) <= published
        opened.append(message(len(found)))
        assert bodies(opened.log) == list(range(len(found) + 1))
    finally:
        opened.files.close()
