"""A sync that fails: the system then holds for written what the disk may never have."""

import errno
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.store.crashes import Failing, Recorder, SimulatedDisk
from tests.store.disks import Disk
from tests.store.opened import Opened, killed_now, left, make_messages
from tests.store.stream_opened import Opened as OpenedStreams
from tests.store.stream_opened import bodies, message

from jumpmq.store import StoreError


@pytest.mark.parametrize("why", ["killed before the sync", "the sync failed"])
def test_what_a_start_found_is_there_after_a_loss_of_power(tmp_path: Path, why: str) -> None:
    """Though the process that wrote it never had it on disk."""
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
    recorder = Recorder()
    second = Opened(tmp_path / "second", recorder)
    assert left(second) == {1: [1, 2, 3, 4]}
    second.store.append(1, make_messages(5, 5))
    second.commit()
    calls += recorder.calls
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
    with pytest.raises(StoreError, match=r"cannot write the last commit of .*log again: Input/output error; put that"):
        Opened(again, disk)
    disk.sync_error = errno.ENOSPC
    disk.write_error = errno.ENOSPC
    full = Opened(again, disk)  # clients may make room
    assert left(full) == {1: [1, 2]}
    disk.sync_error = disk.write_error = 0
    full.close()
    opened.close()


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
