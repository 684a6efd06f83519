"""The index that a copy makes of its log equals the leader's, after a kill at any moment."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.in_memory import directory_in_memory
from tests.store.crash_points import STEPS, UNHURRIED, Workload, difference, found_in
from tests.store.crashes import Recorder, SimulatedDisk
from tests.store.opened import Opened, left, make_messages, seqs
from tests.store.stream_crash_points import STEPS as STREAM_STEPS
from tests.store.stream_crash_points import Workload as StreamWorkload
from tests.store.stream_opened import Opened as StreamOpened
from tests.store.stream_opened import bodies, message

from jumpmq.store import opening
from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.indexing import index_sealed
from jumpmq.store.inspection import check
from jumpmq.store.log import DIRECTORY, file_name


class Killed(BaseException):
    """The process ends here."""


class Mortal(Files):
    """Files of a process killed at a given call."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def _live(self) -> None:
        self._left -= 1
        if not self._left:
            raise Killed

    def open(self, path: Path) -> int:
        self._live()
        return super().open(path)

    def create(self, path: Path) -> int:
        self._live()
        return super().create(path)

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        self._live()
        super().write(file, offset, buffers)

    def sync(self, file: int) -> None:
        self._live()

    def sync_directory(self, path: Path) -> None:
        self._live()

    def noted(self, path: Path) -> None:
        self._live()


def copied(home: Path, copy: Path) -> list[int]:
    """Copy the log of a home alone; return the segments."""
    shutil.copytree(home / DIRECTORY, copy / DIRECTORY)
    return sorted(int(path.stem) for path in (copy / DIRECTORY).glob("*.log"))


def index(copy: Path, before: int, files: Files | None = None) -> list[int]:
    """Index a copy up to a segment, and remove consumed segments; return the numbers removed."""
    removed: list[int] = []
    while (indexed := index_sealed(copy, before, files)).segment < before or indexed.consumed:
        for segment in indexed.consumed:
            (files or Files()).remove(copy / DIRECTORY / file_name(segment))
        removed += indexed.consumed
    return removed


def index_killed(copy: Path, before: int, chance: Random) -> None:
    """As :func:`index`, by a series of killed processes and a last, complete run."""
    for _ in range(100):
        try:
            index(copy, before, Mortal(chance.choice([0, 0, *range(1, 60)])))
            return
        except Killed:
            pass
    index(copy, before)


@settings(UNHURRIED, max_examples=examples(15))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_a_copy_has_what_the_leader_has(steps: list[Any], seed: int) -> None:
    chance = Random(seed)
    with directory_in_memory() as name:
        home, copy = Path(name) / "home", Path(name) / "copy"
        workload = Workload(home)
        workload.opened.store.keep_from(1)
        for action, queue, number in steps:
            action(workload, queue, number)
            if chance.random() < 0.7:
                workload.end_turn()
        workload.end_turn()
        workload.opened.commit()
        expected = workload.states_from(workload.opened.store.committed)[0]
        workload.opened.close()
        segments = copied(home, copy)
        for place, segment in enumerate(segments[1:]):
            if chance.random() < 0.3:
                continue
            index_killed(copy, segment, chance)
            if chance.random() < 0.3 or segment == segments[-1]:
                opened = Path(name) / f"opened {place}"
                shutil.copytree(copy, opened)
                found = found_in(opened)
                assert found == expected, f"indexed before segment {segment}: {difference(found, expected)}"


def test_messages_that_follow_in_the_next_segment_belong_to_the_batch_that_was_settled_before(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    opened = Opened(home, segment_bytes=16 << 10)
    store = opened.store
    store.keep_from(1)

    def fill(number: int) -> None:
        """Continue the log in the next segment, behind everything staged."""
        store.put("filler", "0", str(number) * (17 << 10))
        store.flush()

    def roll(number: int) -> None:
        fill(number)
        opened.work_until(lambda: len(store._log.segments) > number)

    store.append(1, make_messages(1, 3))  # an earlier batch, which stays
    roll(1)
    settled, kept = make_messages(4, 6), make_messages(7, 9)
    store.append(1, settled)
    opened.commit()
    for one in settled:
        one.batch.settle(one.seq)
    fill(2)
    store.append(1, kept)  # during the write
    opened.commit()
    batch = kept[0].batch
    assert batch is settled[0].batch and len({position >> 32 for position in batch.positions}) == 2
    roll(3)
    batch.settle(8)
    opened.commit()
    store.move([(batch, [kept[0], kept[2]])])
    opened.commit()
    assert len(batch.positions) == 1
    roll(4)
    roll(5)
    opened.close()
    segments = copied(home, copy)
    removed = dict[int, list[int]]()
    for segment in segments[1:]:
        removed[segment] = index(copy, segment)
        found = Opened(shutil.copytree(copy, tmp_path / f"before {segment}"))
        assert left(found)[1] == [1, 2, 3, 7, 9] and not found.store.losses
        found.close()
    assert removed[3] == [2], "the batch lay there"


@settings(UNHURRIED, max_examples=examples(15))
@given(steps=STREAM_STEPS, seed=st.integers(0, 1 << 30))
def test_streams_of_a_copy_are_those_of_the_leader(steps: list[tuple[int, int, int, str]], seed: int) -> None:
    chance = Random(seed)
    with directory_in_memory() as name:
        home, copy = Path(name) / "home", Path(name) / "copy"
        workload = StreamWorkload(home, Recorder())
        store = workload.opened.store
        store.keep_from(1)
        workload.run(steps)
        workload.opened.commit()
        expected = [(log.first, log.end, bodies(log)) for log in workload.logs.values()]
        waiting = [one.seq for one in workload.waiting]
        workload.opened.close()
        segments = copied(home, copy)
        for segment in segments[1:]:
            if chance.random() < 0.7:
                index_killed(copy, segment, chance)
        if len(segments) > 1:
            index_killed(copy, segments[-1], chance)
            assert not list(check(copy))
        found = StreamOpened(copy)
        logs = found.log, found.files.open(8)
        assert [(log.first, log.end, bodies(log)) for log in logs] == expected
        assert seqs(found.store, found.store.batches().get(1, [])) == waiting and not found.losses
        found.close()


@settings(UNHURRIED, max_examples=examples(10))
@given(steps=STREAM_STEPS, seed=st.integers(0, 1 << 30))
def test_a_power_cut_during_a_run_costs_nothing(steps: list[tuple[int, int, int, str]], seed: int) -> None:
    chance = Random(seed)
    with directory_in_memory() as name:
        home, copy, recorder = Path(name) / "home", Path(name) / "copy", Recorder()
        workload = StreamWorkload(home, Recorder())
        workload.opened.store.keep_from(1)
        workload.run(steps)
        expected = [(log.first, log.end) for log in workload.logs.values()], [one.seq for one in workload.waiting]
        workload.opened.close()
        (copy / DIRECTORY).mkdir(parents=True)
        opening.create(copy)
        disk, segments = SimulatedDisk((copy / "jumpmq.db").read_bytes(), chance), []
        for path in sorted((home / DIRECTORY).glob("*.log")):
            file = recorder.create(copy / DIRECTORY / path.name)
            recorder.write(file, 0, [path.read_bytes()])
            recorder.sync(file)
            recorder.close(file)
            segments.append(int(path.stem))
        recorder.sync_directory(copy / DIRECTORY)
        copied = len(recorder.calls)
        for segment in segments[1:]:
            index(copy, segment, recorder)
        calls = recorder.calls
        points = chance.sample(range(copied, len(calls) + 1), min(30, len(calls) + 1 - copied))
        for place in range(len(calls) + 1):
            if place in points:
                crashed = Path(name) / f"crashed {place}"
                disk.crash(crashed, chance)
                if len(segments) > 1 and chance.random() < 0.5:
                    index(crashed, segments[-1])
                found = StreamOpened(crashed)
                logs = found.log, found.files.open(8)
                left = seqs(found.store, found.store.batches().get(1, []))
                assert ([(log.first, log.end) for log in logs], left) == expected, f"before call {place}"
                assert all(bodies(log) == list(range(log.first, log.end)) for log in logs) and not found.losses
                found.close()
                shutil.rmtree(crashed)
            if place < len(calls):
                disk.take(calls[place])


def test_a_stream_that_is_deleted_leaves_no_files(tmp_path: Path) -> None:
    opened = StreamOpened(tmp_path / "home", segment_bytes=16 << 10)
    opened.store.keep_from(1)
    for number in range(30):
        opened.append(message(number, 2000))
    first = copied(tmp_path / "home", tmp_path / "copy")
    index(tmp_path / "copy", first[-1])
    assert len(list((tmp_path / "copy" / "streams" / "7").iterdir())) == 1
    opened.remove(7)
    other = opened.files.open(8)
    for number in range(30):
        opened.files.append(other, [message(number, 2000)])
        opened.commit()
    shutil.rmtree(tmp_path / "copy" / DIRECTORY)
    removed = index(tmp_path / "copy", copied(tmp_path / "home", tmp_path / "copy")[-1])
    assert [path.name for path in (tmp_path / "copy" / "streams").iterdir()] == ["8"]
    assert len(removed) > len(first)
    opened.close()


@pytest.mark.parametrize("damage", ["missing", "bit", "index"])
def test_damage_ends_a_run_with_nothing_changed(tmp_path: Path, damage: str) -> None:
    opened = StreamOpened(tmp_path / "home", segment_bytes=16 << 10)
    opened.store.keep_from(1)
    for number in range(60):
        opened.append(message(number, 2000))
    opened.close()
    copy = tmp_path / "copy"
    segments = copied(tmp_path / "home", copy)
    index_sealed(copy, segments[2])
    before = (copy / "jumpmq.db").read_bytes()
    path = copy / DIRECTORY / file_name(segments[3])
    match damage:
        case "missing":
            path.unlink()
        case "bit":
            octets = bytearray(path.read_bytes())
            octets[5000] ^= 1
            path.write_bytes(octets)
        case "index":
            before = before[: len(before) // 2]
            (copy / "jumpmq.db").write_bytes(before)
    with pytest.raises(StoreError, match=r"; the copy is replaced when the home has others to spare"):
        index_sealed(copy, segments[-1])
    assert (copy / "jumpmq.db").read_bytes() == before
