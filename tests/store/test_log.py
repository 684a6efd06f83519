"""Segments of the log."""

import os
from pathlib import Path

import pytest
from tests.store.opened import Opened, make_messages

from jumpmq.store.files import Files
from jumpmq.store.log import Log, segment_bytes_on


def open_files() -> list[str]:
    return [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


def test_a_segment_that_is_cut_while_it_goes_gives_its_room_back(tmp_path: Path) -> None:
    log = Log(tmp_path, Files())
    segment = log.begin(1)
    log.begin(2)
    remove = log.forget(segment)
    log.cut(segment)
    remove()
    assert not [path for path in open_files() if path.startswith(str(segment.path))]
    log.close()


def test_what_little_lives_in_the_last_segment_is_moved_where_the_disk_is_short(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "data")
    messages = make_messages(1, 100, lambda number: bytes(100_000))
    opened.store.append(1, messages)
    opened.commit()
    for one in messages[:70]:
        assert one.batch is not None
        one.batch.settle(one.seq)
    opened.commit()
    (full,) = (tmp_path / "data" / "log").glob("*.log")

    def is_gone() -> bool:
        opened.store.make_room()
        return not full.exists()

    opened.work_until(is_gone)
    opened.commit()
    left = opened.crash().store.batches()[1]
    assert sum(batch.remaining for batch in left) == 30
    opened.close()


def test_consumed_segments_stay_as_long_as_followers_need_them(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "data", segment_bytes=1 << 14)
    opened.store.keep_from(2)

    def segments() -> list[int]:
        return sorted(int(path.stem) for path in (tmp_path / "data" / "log").glob("*.log"))

    for first in range(1, 61, 10):
        messages = make_messages(first, first + 9, lambda number: bytes(2_000))
        opened.store.append(1, messages)
        opened.commit()
        for one in messages:
            assert one.batch is not None
            one.batch.settle(one.seq)
        opened.commit()
    last = segments()[-1]
    assert last > 4
    opened.work_until(lambda: segments() == list(range(2, last + 1)))
    opened.store.keep_from(4)
    opened.work_until(lambda: segments()[0] == 4)
    opened.close()


@pytest.mark.parametrize(("disk", "segment"), [(1 << 20, 4 << 20), (160 << 20, 10 << 20), (1 << 40, 64 << 20)])
def test_a_small_disk_holds_many_segments(
    disk: int, segment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments on a small disk are small, so that consuming a part of the content frees room."""
    found = os.statvfs_result((4096, 4096, disk // 4096, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert segment_bytes_on(tmp_path) == segment
