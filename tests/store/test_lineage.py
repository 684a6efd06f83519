"""Reading the lineage of a log leaves its files unchanged."""

import errno
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.disks import Disk
from tests.store.old_stores import old_store
from tests.store.opened import Opened, make_messages

from jumpmq.store.errors import StoreError
from jumpmq.store.files import Files
from jumpmq.store.lineage import Stretch, read_lineage
from jumpmq.store.log import OFFSET_BITS, file_name
from jumpmq.store.records import OPENING_SIZE, Opening
from jumpmq.store.recovery import Recovery
from jumpmq.store.scan import OpenSegment

SEGMENT = 4 << 10

OPENING = bytes.fromhex("4a756d704d510003 07000000 05000000 2a00000000000000 d2029649 49cf7d1a")
"""Magic, segment 7, epoch 5, first commit 42, salt 1234567890, CRC-32 of all of these."""

OPENING_0_2 = bytes.fromhex("4a756d704d510002 0700000000000000 2a00000000000000 d2029649 c191feff")
"""The header without an epoch, as written by version 0.2."""


def test_an_opening_is_these_octets_twice() -> None:
    opening = Opening(7, 42, 1234567890, epoch=5)
    assert opening.encode() == 2 * OPENING and Opening.decode(2 * OPENING) == opening
    assert Opening.decode(bytes(32) + OPENING) == Opening.decode(OPENING + bytes(32)) == opening


def test_an_opening_of_0_2_has_epoch_0() -> None:
    assert Opening.decode(2 * OPENING_0_2) == Opening(7, 42, 1234567890, epoch=0)


def files_of(directory: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_a_store_of_0_2_has_a_lineage_that_goes_on_in_the_epoch_of_the_next_start(tmp_path: Path, state: str) -> None:
    directory = old_store(state, tmp_path / "data")
    before = files_of(directory)
    (old,) = read_lineage(directory).lineage
    assert files_of(directory) == before
    assert (old.segment, old.epoch) == (1, 0) and old.end > OPENING_SIZE
    opened = Opened(directory, epoch=3)
    opened.store.put("kind", "key", 1)
    opened.commit()
    opened.store.close()
    again = read_lineage(directory)
    assert [(one.segment, one.epoch) for one in again.lineage] == [(1, 0), (2, 3)]
    assert again.lineage[0] == old and not again.damaged


def written(directory: Path, epoch: int = 1, first: int = 1) -> Opened:
    """Make a store with some segments, of commits with one message each."""
    opened = Opened(directory, segment_bytes=SEGMENT, epoch=epoch)
    for seq in range(first, first + 12):
        opened.store.append(1, make_messages(seq, seq, body=lambda seq: bytes(seq * 97 % 900)))
        opened.commit()
        opened.work_until(lambda: not opened.store.is_writing)
    return opened


def test_each_start_goes_on_in_its_epoch(tmp_path: Path) -> None:
    known: tuple[Stretch, ...] = ()
    for epoch, first in ((0, 1), (4, 13), (5, 25)):
        opened = written(tmp_path / "data", epoch, first)
        segments = opened.store._log.segments.values()
        found = read_lineage(tmp_path / "data").lineage
        assert found == tuple(Stretch(one.number, one.epoch, one.salt, one.end) for one in segments)
        assert found[: len(known)] == known and {one.epoch for one in found[len(known) :]} == {epoch}
        opened.store.close()
        known = read_lineage(tmp_path / "data").lineage
    assert len(known) >= 6


def ends(path: Path) -> list[int]:
    """Return the end of a segment's opening, and of every commit."""
    with closing(OpenSegment(Files(), path)) as file:
        return [OPENING_SIZE, *(one.end for one in file.commits())]


def copy_of(directory: Path, to: Path) -> list[Path]:
    shutil.copytree(directory / "log", to / "log")
    return sorted(to.glob("log/*.log"))


def test_a_log_that_is_cut_anywhere_ends_behind_its_last_whole_commit(tmp_path: Path) -> None:
    written(tmp_path / "data").store.close()
    paths = copy_of(tmp_path / "data", tmp_path / "cut")
    whole = read_lineage(tmp_path / "cut").lineage
    last = ends(paths[-1])
    octets = paths[-1].read_bytes()
    assert len(last) > 2 and whole[-1].end == last[-1]
    for cut in range(last[-1], OPENING_SIZE // 2 - 1, -1):
        with paths[-1].open("r+b") as file:
            file.truncate(cut)
        end = max(end for end in last if end <= max(cut, OPENING_SIZE))
        assert read_lineage(tmp_path / "cut") == ((*whole[:-1], whole[-1]._replace(end=end)), [], [])
    paths[-1].write_bytes(bytes(len(octets)))  # a segment in the making at the power failure
    assert read_lineage(tmp_path / "cut") == (whole[:-1], [], [])


def test_damage_ends_a_log_but_before_the_mark(tmp_path: Path) -> None:
    for epoch, first in ((1, 1), (2, 13)):
        written(tmp_path / "data", epoch, first).store.close()
    paths = copy_of(tmp_path / "data", tmp_path / "flipped")
    whole = read_lineage(tmp_path / "flipped").lineage
    place = len(whole) - 2  # a segment between others
    (segment, _, _, end), bounds, octets = whole[place], ends(paths[place]), bytearray(paths[place].read_bytes())
    base = segment << OFFSET_BITS
    assert bounds[-1] == end and len(bounds) > 2
    for flipped in range(OPENING_SIZE, end, 13):
        octets[flipped] ^= 16
        paths[place].write_bytes(octets)
        octets[flipped] ^= 16
        last = max(bound for bound in bounds if bound <= flipped)
        for mark in (0, base, base | last):
            cut = (*whole[:place], whole[place]._replace(end=last))
            assert read_lineage(tmp_path / "flipped", mark) == (cut, [], [])
        found = read_lineage(tmp_path / "flipped", base | end)
        assert found.damaged == [base | last]
        assert found.hidden == ([] if found.lineage == whole else found.damaged)
        assert found.lineage == whole or (last == bounds[-2] and found.lineage == (*cut, *whole[place + 1 :]))
    octets[:OPENING_SIZE] = bytes(OPENING_SIZE)
    paths[place].write_bytes(octets)
    assert read_lineage(tmp_path / "flipped", base - 1) == (whole[:place], [], [])
    assert read_lineage(tmp_path / "flipped", base | end) == (whole[:place] + whole[place + 1 :], [base], [base])


def test_a_commit_that_was_given_up_is_none_of_the_log(tmp_path: Path) -> None:
    disk = Disk()
    opened = Opened(tmp_path / "data", disk)
    opened.store.append(1, make_messages(1, 1))
    opened.commit()
    before = read_lineage(tmp_path / "data").lineage
    disk.sync_error = errno.EIO
    opened.store.append(1, make_messages(2, 2))
    receipt = opened.store.flush()
    opened.error()
    assert read_lineage(tmp_path / "data").lineage[0].end > before[0].end
    disk.sync_error = 0
    opened.wait_for(receipt)
    first, second = read_lineage(tmp_path / "data").lineage
    assert (first,) == before and second.end > OPENING_SIZE
    opened.close()


def last_segment(directory: Path) -> tuple[Stretch, Path, list[int]]:
    """Return the last segment of a log, with file and commit numbers."""
    last = read_lineage(directory).lineage[-1]
    path = directory / "log" / file_name(last.segment)
    with closing(OpenSegment(Files(), path)) as file:
        return last, path, [found.number for found in file.commits()]


def create_unused(path: Path, segment: int, first_commit: int) -> None:
    """Create a segment without commits beside a given segment."""
    opening = Opening(segment, first_commit, 7, epoch=1)
    path.with_name(file_name(segment)).write_bytes(opening.encode() + bytes(SEGMENT))


def test_a_segment_before_the_mark_tells_what_was_given_up_also_where_it_is_unused(tmp_path: Path) -> None:
    opened = written(tmp_path / "data")
    opened.store.close()
    last, path, numbers = last_segment(tmp_path / "data")
    *_, before, end, _ = ends(path)
    octets = bytearray(path.read_bytes())
    octets[before] ^= 16  # the write of two commits failed, and left the second one
    octets[end - 1] ^= 16
    path.write_bytes(octets)
    create_unused(path, last.segment + 1, numbers[-2])
    mark = (last.segment + 1) << OFFSET_BITS | OPENING_SIZE
    found = read_lineage(tmp_path / "data", mark)
    assert not found.damaged
    assert found.lineage[-2:] == (last._replace(end=before), Stretch(last.segment + 1, 1, 7, OPENING_SIZE))


def test_behind_segments_that_were_consumed_an_unused_one_tells_a_start_the_same(tmp_path: Path) -> None:
    opened = written(tmp_path / "data")
    opened.store.close()
    last, path, numbers = last_segment(tmp_path / "data")
    create_unused(path, last.segment + 1, numbers[-1])  # the write of the last commit failed, and left it
    create_unused(path, last.segment + 3, numbers[-1] + 2)
    found = Recovery(tmp_path / "data", Files(), lambda settled: None, without_index=True)
    read = read_lineage(tmp_path / "data").lineage
    assert [(one.number, one.end) for one in found.segments] == [(one.segment, one.end) for one in read]
    assert read[-3].end < last.end


def test_a_log_goes_on_behind_segments_that_were_consumed(tmp_path: Path) -> None:
    """A log continues behind consumed segments, whatever a failed write left at the end of the previous segment."""
    for epoch, first in ((1, 1), (2, 13)):
        written(tmp_path / "data", epoch, first).store.close()
    paths = copy_of(tmp_path / "data", tmp_path / "consumed")
    whole = read_lineage(tmp_path / "consumed").lineage
    paths[1].unlink()
    octets = bytearray(paths[0].read_bytes())
    octets[whole[0].end - 8] ^= 16
    paths[0].write_bytes(octets)
    assert read_lineage(tmp_path / "consumed") == ((whole[0], *whole[2:]), [], [])
    octets[ends(paths[0])[-2]] ^= 16
    paths[0].write_bytes(octets)
    cut = whole[0]._replace(end=ends(paths[0])[-1])
    assert cut.end < whole[0].end and read_lineage(tmp_path / "consumed") == ((cut, *whole[2:]), [], [])


def test_a_file_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    written(tmp_path / "data").store.close()
    (tmp_path / "data" / "log" / file_name(2)).unlink()
    (tmp_path / "data" / "log" / file_name(2)).mkdir()
    with pytest.raises(StoreError, match="correct the cause"):
        read_lineage(tmp_path / "data")
