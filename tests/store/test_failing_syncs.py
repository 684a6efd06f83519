"""Failed syncs: octets that the system reports as written may be missing on disk, and present in copies."""

import errno
import os
import shutil
import struct
from pathlib import Path
from random import Random

import pytest
from tests.store.crashes import Failing, Recorder, SimulatedDisk
from tests.store.disks import Disk
from tests.store.opened import Opened, killed_now, left, make_messages
from tests.store.stream_opened import Opened as OpenedStreams
from tests.store.stream_opened import bodies, message

from jumpmq.replication.lineage import offset_at
from jumpmq.store import StoreError
from jumpmq.store.errors import Unsynced
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import DIRECTORY, OFFSET_BITS, file_name


def positions(told: tuple[int, int]) -> list[int]:
    """Return the positions reported since the last call."""
    octets = os.read(told[0], 1 << 16)
    return [position for (position,) in struct.iter_unpack("=q", octets)]


def test_the_position_behind_each_commit_is_told(tmp_path: Path, told: tuple[int, int]) -> None:
    opened = Opened(tmp_path / "data", segment_bytes=4 << 10, tell=told[1])
    ends: list[int] = []
    for seq in range(1, 30):
        opened.store.append(1, make_messages(seq, seq, body=lambda seq: bytes(seq * 97 % 900)))
        opened.store.flush(begin=False)
        opened.store._writer._seconds = 0.0  # a quick disk
        opened.store.begin(here=True)
        assert opened.store.committed == len(ends)  # a home with copies leaves the work to the thread
        opened.work_until(lambda: opened.store.committed > len(ends) and not opened.store.is_writing)
        last = next(one for one in reversed(read_lineage(tmp_path / "data").lineage) if one.end > 64)
        ends.append(last.segment << OFFSET_BITS | last.end)
    assert positions(told) == ends and len({end >> OFFSET_BITS for end in ends}) > 3
    opened.close()


def test_what_copies_may_have_is_not_written_otherwise(tmp_path: Path, told: tuple[int, int]) -> None:
    disk = Disk()
    opened = Opened(tmp_path / "data", disk, tell=told[1])
    opened.store.append(1, make_messages(1, 1))
    opened.commit()
    disk.sync_error = errno.EIO
    opened.store.append(1, make_messages(2, 2))
    receipt = opened.store.flush()
    with pytest.raises(Unsynced, match="Input/output error"):
        opened.wait_for(receipt)
    assert opened.errors.empty() and opened.store.committed < receipt
    disk.sync_error = 0
    before = read_lineage(tmp_path / "data").lineage
    assert positions(told)[-1] == before[0].segment << OFFSET_BITS | before[0].end
    opened.store.append(1, make_messages(3, 3))
    opened.store.flush()
    opened.store.make_room()
    opened.store.completed()
    with pytest.raises(Unsynced):
        opened.store.close()
    assert read_lineage(tmp_path / "data").lineage == before
    again = Opened(killed_now(tmp_path / "data", tmp_path / "again"))
    assert left(again) == {1: [1, 2]}
    again.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_was_not_told_is_tried_again(tmp_path: Path, told: tuple[int, int], error: int) -> None:
    disk = Disk()
    opened = Opened(tmp_path / "data", disk, tell=told[1])
    disk.write_error = error
    opened.store.append(1, make_messages(1, 1))
    receipt = opened.store.flush()
    opened.error()
    disk.write_error = 0
    opened.wait_for(receipt)
    assert left(opened.crash()) == {1: [1]} and len(positions(told)) == 1
    opened.close()


def test_small_commits_are_shipped_before_they_are_written(tmp_path: Path, told: tuple[int, int]) -> None:
    """Commits with room in the file are shipped before the write; if the write then fails, the store ends."""
    shipped: dict[int, bytes] = {}

    def ship(position: int, octets: bytes) -> bool:
        if len(shipped) == 3:
            return False  # a follower is behind
        shipped[position] = octets
        return True

    disk = Disk()
    opened = Opened(tmp_path / "data", disk, tell=told[1], ship=ship)
    for seq, size in enumerate((10, 20, 30, 1 << 17, 40, 50), start=1):
        opened.store.append(1, make_messages(seq, seq, body=lambda seq, size=size: bytes(size)))  # type: ignore[misc]
        opened.commit()
    (stretch,) = read_lineage(tmp_path / "data").lineage
    octets = (tmp_path / "data" / DIRECTORY / file_name(stretch.segment)).read_bytes()
    ends = [position + len(content) for position, content in shipped.items()]
    for position, content in shipped.items():
        assert octets[offset_at(position) :][: len(content)] == content
    others = positions(told)
    assert len(others) == 3 and not {*ends} & {*others}
    shipped.clear()
    disk.write_error = errno.ENOSPC
    opened.store.append(1, make_messages(7, 7))
    receipt = opened.store.flush()
    with pytest.raises(Unsynced, match="No space left"):
        opened.wait_for(receipt)
    assert len(shipped) == 1
    with pytest.raises(Unsynced):
        opened.store.close()


@pytest.mark.parametrize("why", ["killed before the sync", "the sync failed"])
def test_what_a_start_found_is_there_after_a_loss_of_power(tmp_path: Path, why: str) -> None:
    """Messages found at a start survive a loss of power, although the process that wrote them never synced."""
    recorder = Failing(Random(1), 0.0, errno.EIO)
    first = Opened(tmp_path / "first", recorder)
    index = (tmp_path / "first" / "jumpmq.db").read_bytes()
    messages = make_messages(1, 4)
    first.store.append(1, messages[:2])
    first.commit()
    place = len(recorder.calls)
    first.store.append(1, messages[2:])
    first.commit()
    (sync,) = [number for number in range(place, len(recorder.calls)) if recorder.calls[number].name == "sync"]
    calls = recorder.calls[: sync + 1]
    calls[sync] = calls[sync].__class__("sync_failed", calls[sync].path)
    if why == "killed before the sync":
        del calls[sync]
    killed_now(tmp_path / "first", tmp_path / "second")
    first.close()
    files = Recorder()
    second = Opened(tmp_path / "second", files)
    assert left(second) == {1: [1, 2, 3, 4]}
    second.store.append(1, make_messages(5, 5))
    second.commit()
    calls += files.calls
    second.close()
    for seed in range(20):
        disk = SimulatedDisk(index, Random(seed))
        for call in calls:
            disk.take(call)
        disk.crash(tmp_path / "crashed", Random(seed))
        crashed = Opened(tmp_path / "crashed")
        assert (left(crashed), crashed.store.losses.listed()) == ({1: [1, 2, 3, 4, 5]}, [])
        crashed.close()
        shutil.rmtree(tmp_path / "crashed")


def test_a_disk_that_refuses_that_is_told_of(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "data")
    opened.store.append(1, make_messages(1, 2))
    opened.commit()
    disk = Disk()
    disk.sync_error = errno.EIO
    again = killed_now(tmp_path / "data", tmp_path / "again")
    with pytest.raises(
        StoreError, match=r"cannot write the last commit of .*log again: Input/output error; correct the cause"
    ):
        Opened(again, disk)
    disk.sync_error = errno.ENOSPC
    disk.write_error = errno.ENOSPC
    full = Opened(again, disk)  # clients may make room
    assert left(full) == {1: [1, 2]}
    disk.sync_error = disk.write_error = 0
    full.close()
    opened.close()


def test_files_of_unfinished_commits_go_once_others_have_their_offsets(tmp_path: Path) -> None:
    opened = OpenedStreams(tmp_path / "data")
    opened.append(*(message(number) for number in range(10)))
    killed_now(tmp_path / "data", tmp_path / "again")  # the log does not have the next commit
    opened.log.segment_bytes = 1
    opened.append(message(10))
    shutil.copytree(tmp_path / "data" / "streams", tmp_path / "again" / "streams")
    opened.close()
    left = tmp_path / "again" / "streams" / "7" / f"{10:020d}.segment.uncommitted"
    again = OpenedStreams(tmp_path / "again")
    assert left.exists() and bodies(again.log) == list(range(10))
    again.close()
    again = OpenedStreams(tmp_path / "again")
    assert left.exists()
    again.append(message(10))
    again.close()
    again = OpenedStreams(tmp_path / "again")
    assert not left.exists() and bodies(again.log) == list(range(11))
    again.close()


def test_chunks_of_streams_are_written_again_whatever_the_files_show(tmp_path: Path) -> None:
    opened = OpenedStreams(tmp_path / "data")
    opened.append(*(message(number) for number in range(10)))
    killed_now(tmp_path / "data", tmp_path / "again")
    shutil.copytree(tmp_path / "data" / "streams", tmp_path / "again" / "streams")
    opened.close()
    recorder = Recorder()
    again = OpenedStreams(tmp_path / "again", recorder)
    written = [call for call in recorder.calls if call.name == "write" and call.path.startswith("streams/7/")]
    assert bodies(again.log) == list(range(10)) and written
    again.close()
