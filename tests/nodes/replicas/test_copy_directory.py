"""Opening a copy on disk after any failure of its process and disk."""

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.nodes.homes import in_loop, until
from tests.store import stream_opened
from tests.store.opened import Opened, make_messages

from jumpmq.nodes.replicas.copy_directory import NOTE, CopyDirectory, DamagedCopy
from jumpmq.nodes.replicas.disk_thread import DiskThread, Remove, TaskResult, perform
from jumpmq.replication.actions import Append, Begin, Cut, Note, Open, Sync
from jumpmq.replication.lineage import Stretch, before, position_at
from jumpmq.store.errors import DirectoryInUse, StoreError
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import DIRECTORY, file_name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home's directory with two segments."""
    directory = tmp_path_factory.mktemp("home")
    opened = Opened(directory, segment_bytes=1 << 16)
    for first in range(1, 241, 30):
        opened.store.append(1, make_messages(first, first + 29, lambda seq: b"%d" % seq * 300))
        opened.commit()
    opened.close()
    assert len(read_lineage(directory).lineage) > 1
    return directory


def octets_of(home: Path, stretch: Stretch) -> bytes:
    return (home / DIRECTORY / file_name(stretch.segment)).read_bytes()[: stretch.end]


def copied(home: Path, directory: Path, count: int = 99) -> CopyDirectory:
    """A copy of so many segments."""
    copy = CopyDirectory(directory, "log")
    for stretch in read_lineage(home).lineage[:count]:
        copy.open_segment(stretch._replace(end=0))
        copy.append(position_at(stretch.segment, 0), octets_of(home, stretch))
    copy.sync()
    return copy


def test_a_copy_is_what_the_home_has_and_opens_as_a_home(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path / "copy")
    copy.close()
    found = CopyDirectory(tmp_path / "copy", "log")
    assert found.lineage == read_lineage(home).lineage == copy.lineage
    for stretch in found.lineage:
        assert found.path(stretch.segment).read_bytes() == octets_of(home, stretch)
    found.close()
    opened = Opened(tmp_path / "copy")
    assert sum(len(opened.store.read(batch)) for batch in opened.store.batches()[1]) == 240
    opened.close()


def test_half_a_commit_is_cut_when_the_copy_is_opened(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path, 1)
    last = read_lineage(home).lineage[1]
    copy.open_segment(last._replace(end=0))
    copy.append(position_at(last.segment, 0), octets_of(home, last)[:-1])
    copy.close()
    found = CopyDirectory(tmp_path, "log")
    end = found.lineage[-1].end
    assert 64 < end < last.end - 1
    assert found.path(last.segment).stat().st_size == end
    found.append(found.end, octets_of(home, last)[end:])
    assert found.lineage == read_lineage(home).lineage[:2]
    found.close()


def test_a_segment_without_its_opening_is_removed(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path, 1)
    last = read_lineage(home).lineage[1]
    copy.open_segment(last._replace(end=0))
    copy.close()
    found = CopyDirectory(tmp_path, "log")
    assert found.lineage == read_lineage(home).lineage[:1]
    assert not found.path(last.segment).exists()
    found.close()


def test_a_log_that_ends_before_its_mark_takes_another_identity(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path)
    copy.note(4, copy.end)
    disk = copy.noted.disk
    last = copy.path(copy.lineage[-1].segment)
    copy.close()
    os.truncate(last, 100)
    found = CopyDirectory(tmp_path, "log")
    assert found.renewed and found.noted.disk != disk
    assert (found.noted.epoch, found.noted.mark) == (4, 0), "the promise stays, the mark does not"
    found.close()


def test_damage_before_the_mark_is_refused_with_a_remedy(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path)
    copy.note(1, copy.end)
    stretch = copy.lineage[-1]
    path = copy.path(stretch.segment)
    copy.close()
    octets = bytearray(path.read_bytes())
    octets[200] ^= 1
    path.write_bytes(octets)
    with pytest.raises(StoreError, match=r"what was complete; the copy is replaced when"):
        CopyDirectory(tmp_path, "log")


@pytest.mark.parametrize("place", [0, -1])
def test_a_damaged_copy_opens_as_it_is_if_there_is_no_better_one(home: Path, tmp_path: Path, place: int) -> None:
    copy = copied(home, tmp_path)
    copy.note(1, copy.end)
    lineage, stretch = copy.lineage, copy.lineage[place]
    path = copy.path(stretch.segment)
    copy.close()
    octets = bytearray(path.read_bytes())
    octets[72] ^= 1  # of the number of the first commit
    path.write_bytes(octets)
    with pytest.raises(DamagedCopy) as refused:
        CopyDirectory(tmp_path, "log")
    assert not refused.value.hides
    found = CopyDirectory(tmp_path, "log", damaged=True)
    assert found.lineage == lineage and not found.renewed and path.read_bytes() == octets
    assert found.damage == f"{path} is damaged at octet 64, in what was complete"
    found.close()


def test_a_copy_with_a_damaged_opening_has_a_gap_and_loses_no_octets(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path)
    copy.note(1, copy.end)
    (first, *others), disk = copy.lineage, copy.noted.disk
    assert others
    path = copy.path(first.segment)
    copy.close()
    octets = bytearray(path.read_bytes())
    octets[:64] = bytes(64)
    path.write_bytes(octets)
    with pytest.raises(DamagedCopy) as refused:
        CopyDirectory(tmp_path, "log")
    assert refused.value.hides
    found = CopyDirectory(tmp_path, "log", damaged=True)
    assert (found.lineage, found.noted.disk) == ((*others,), disk)
    assert found.kept == before(first.segment + 1), "members need files"
    assert path.with_suffix(".log.damaged").read_bytes() == octets
    found.close()
    CopyDirectory(tmp_path, "log").close()


def test_damage_before_the_part_that_can_be_shipped_is_no_reason_to_stay_closed(home: Path, tmp_path: Path) -> None:
    """A copy opens in spite of damage before its shippable part: files from a damaged leader have the same damage."""
    copy = copied(home, tmp_path)
    first = copy.lineage[0]
    path = copy.path(first.segment)
    copy.close()
    octets = bytearray(path.read_bytes())
    octets[72] ^= 1
    path.write_bytes(octets)
    noted = replace(copy.noted, mark=copy.end, kept=before(first.segment + 1))
    (tmp_path / NOTE).write_bytes(noted.encode())
    found = CopyDirectory(tmp_path, "log")
    assert found.damage == f"{path} is damaged at octet 64, in what was complete"
    found.close()


def test_promise_and_mark_are_kept_and_never_fall(tmp_path: Path) -> None:
    copy = CopyDirectory(tmp_path, "log")
    copy.note(3, 700)
    copy.note(2, 600)
    copy.close()
    (tmp_path / f"{NOTE}.new").write_bytes(b"half a no")
    found = CopyDirectory(tmp_path, "log")
    assert found.noted.epoch == 3 and found.renewed, "an empty log ends before the mark"
    with pytest.raises(DirectoryInUse):
        CopyDirectory(tmp_path, "log")
    found.close()


@pytest.mark.parametrize("octets", [b"", b"{}\n00000000\n", b"\xff\n\n", b'{"log":"log"}\n12'])
def test_a_damaged_note_is_refused(tmp_path: Path, octets: bytes) -> None:
    CopyDirectory(tmp_path, "log").close()
    (tmp_path / NOTE).write_bytes(octets)
    with pytest.raises(StoreError, match=r"replica is damaged .* is copied again"):
        CopyDirectory(tmp_path, "log")


def test_a_copy_of_another_log_is_refused(tmp_path: Path) -> None:
    CopyDirectory(tmp_path, "log").close()
    with pytest.raises(StoreError, match="another home's log"):
        CopyDirectory(tmp_path, "other")


def test_a_cut_reaches_into_an_earlier_segment(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path)
    first = copy.lineage[0]
    copy.cut(position_at(first.segment, 64))
    assert copy.lineage == (first._replace(end=64),)
    assert [path.name for path in (tmp_path / DIRECTORY).iterdir()] == [file_name(first.segment)]
    copy.append(position_at(first.segment, 64), octets_of(home, first)[64:])
    copy.close()
    assert read_lineage(tmp_path).lineage == (first,)


def test_consumed_segments_are_removed_and_commits_go_on_behind_them(home: Path, tmp_path: Path) -> None:
    copy = copied(home, tmp_path)
    following = copy.next_commit()
    begun = copy.begin(5)
    copy.note(5, copy.end)
    assert copy.next_commit() == following, "by the opening alone"
    first, second = (stretch.segment for stretch in copy.lineage[:2])
    perform(copy, [Remove((second,))])
    assert copy.kept == before(second + 1)
    copy.close()
    found = CopyDirectory(tmp_path, "log")
    assert [stretch.segment for stretch in found.lineage[:2]] == [first, second + 1]
    found.remove([stretch.segment for stretch in found.lineage[:-1]])
    assert found.lineage == (begun,) and found.next_commit() == following and not found.renewed
    found.close()
    assert CopyDirectory(tmp_path, "log").lineage == (begun,)


def test_tasks_that_came_together_are_synced_together(home: Path, tmp_path: Path) -> None:
    first, second, *_ = read_lineage(home).lineage
    copy = CopyDirectory(tmp_path, "log")
    begin, octets = position_at(first.segment, 0), octets_of(home, first)
    answers = perform(
        copy,
        [
            Open(first._replace(end=0)),
            Append(begin, octets[:64]),
            Append(begin + 64, octets[64:]),
            Note(2, 0),
            Sync(),
            Open(second._replace(end=0)),
            Cut(begin + 64),
            Begin(0, 2),
        ],
    )
    whole = position_at(first.segment, first.end)
    assert answers[:3] == [(Sync(), whole), (Note(2, 0), whole), (Sync(), position_at(2, 0))]
    assert answers[3] == (Cut(begin + 64), begin + 64)
    _, stretch = answers[4]
    assert isinstance(stretch, Stretch) and stretch.segment == first.segment + 1 and stretch.epoch == 2
    copy.close()
    assert read_lineage(tmp_path).lineage == (first._replace(end=64), stretch)


def test_streams_are_made_from_the_log_of_a_copy(tmp_path: Path) -> None:
    opened = stream_opened.Opened(tmp_path / "home", segment_bytes=1 << 14)
    opened.store.keep_from(1)
    for first in range(0, 400, 40):
        opened.append(*(stream_opened.message(number, 100) for number in range(first, first + 40)))
    copied(tmp_path / "home", tmp_path / "copy").close()
    assert len(read_lineage(tmp_path / "copy").lineage) > 2
    opened.close()
    found = stream_opened.Opened(tmp_path / "copy")
    assert (found.log.first, found.log.end) == (0, 400)
    assert stream_opened.bodies(found.log) == list(range(400))
    found.close()


@in_loop
async def test_commits_are_written_and_synced_in_order_by_whichever_thread(home: Path, tmp_path: Path) -> None:
    """Commits are written and synced in order, by the compiled thread if the file has room, else by Python."""
    stretch = read_lineage(home).lineage[0]
    octets, at = octets_of(home, stretch), position_at(stretch.segment, 0)
    answers: list[TaskResult] = []
    failures: list[Exception] = []
    works: list[bool] = []
    copy = CopyDirectory(tmp_path, "log")
    disk = DiskThread(copy, asyncio.get_running_loop(), answers.extend, failures.append, works.append)
    disk.do(Open(stretch._replace(end=0)))
    for begin in range(0, stretch.end, 1000):
        disk.do(Append(at + begin, octets[begin : begin + 1000]))
        if begin % 3000:
            await until(lambda: not works[-1])
    disk.do(Note(3, at))
    await until(lambda: answers and isinstance(answers[-1][0], Note))
    ends = [end for task, end in answers if isinstance(task, Sync)]
    assert ends == sorted(ends) and ends[-1] == at + stretch.end  # type: ignore[type-var]
    assert octets_of(tmp_path, stretch) == octets and copy.lineage == (stretch,)
    assert disk._writer is not None, "the compiled thread had something to write"
    os.dup2(os.open(os.devnull, os.O_RDONLY), copy._segment[1])  # type: ignore[index]
    disk.do(Append(copy.end, b"nowhere"))
    await until(lambda: failures)
    assert isinstance(failures[0], OSError) and failures[0].errno == errno.EBADF
    disk.do(Append(copy.end, b"nothing is done any more"))
    disk.end()
    await asyncio.to_thread(disk.close)
    copy._segment = None  # the file cannot be cut
    copy.close()
