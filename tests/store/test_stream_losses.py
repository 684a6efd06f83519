"""Rows missing from a stream's files are reported by offset, and later rows follow behind the gap."""

import contextlib
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.opened import Opened as StoreOpened
from tests.store.opened import killed_now
from tests.store.stream_opened import Opened, bodies, message

from jumpmq.store.comparing import is_damaged
from jumpmq.store.files import Files
from jumpmq.store.kinds import STREAM
from jumpmq.store.records import BLOCK, CHUNK_AT
from jumpmq.store.recovery import Recovery
from jumpmq.store.stream_bounds import Bounds, Known
from jumpmq.store.stream_damage import expected, lost
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import check
from jumpmq.store.stream_segment import StreamSegment

COUNT = 100


def make(directory: Path) -> Known:
    """Make a closed stream of five segments of 20 messages in chunks of 5; return the store's records of the stream."""
    opened = Opened(directory.parent)
    opened.log.segment_bytes = 5000
    for first in range(0, COUNT, 5):
        opened.append(*(message(number, 100) for number in range(first, first + 5)))
    known = Known(opened.log.bounds)
    opened.close()
    assert known.bounds.segments == 5 == len(files(directory))
    return known


def files(directory: Path) -> list[Path]:
    return sorted((directory / "7").glob("*.segment"))


def delete(place: int) -> Callable[[Path], None]:
    return lambda directory: files(directory)[place].unlink()


def cut(place: int) -> Callable[[Path], None]:
    """Cut a file at the end of its second chunk."""

    def cut_file(directory: Path) -> None:
        path = files(directory)[place]
        octets = path.read_bytes()
        segment = StreamSegment.open(path)
        path.write_bytes(octets[: segment._positions[2]])

    return cut_file


def swap(directory: Path) -> None:
    """Exchange the names of two files."""
    one, other = files(directory)[1], files(directory)[3]
    kept = one.rename(one.with_name("kept"))
    other.rename(one)
    kept.rename(other)


@pytest.mark.parametrize(
    ("hurt", "missing"),
    [
        (lambda directory: shutil.rmtree(directory / "7"), range(COUNT)),
        (delete(0), range(20)),
        (delete(2), range(40, 60)),
        (delete(-1), range(80, 100)),
        (cut(0), range(10, 20)),
        (cut(2), range(50, 60)),
        (cut(-1), range(90, 100)),
        (swap, [*range(20, 40), *range(60, 80)]),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, hurt: Callable[[Path], None], missing: range) -> None:
    directory = tmp_path / "streams"
    known = {7: make(directory)}
    hurt(directory)
    assert offsets(list(check(directory / "7", known[7]))) >= set(missing)
    for _ in range(2):
        losses: list[str] = []
        found = StreamFiles(directory, known=known, on_loss=losses.append)
        log = found.open(7, "queue 'events'")
        assert log.end == COUNT
        assert set(bodies(log)) == set(range(COUNT)) - set(missing)
        assert offsets(losses) == set(missing)
        assert all("of queue 'events'" in loss for loss in losses)
        found.close()
    for _ in range(2):
        opened = Opened(tmp_path)
        end = opened.log.end
        opened.append(*(message(number, 100) for number in range(end, end + 10)))
        assert set(bodies(opened.log)) == set(range(end + 10)) - set(missing)
        assert offsets(opened.losses) == set(missing)
        opened.close()


def flip(place: int, chunk: int, octet: int) -> Callable[[Path], None]:
    """Flip a bit of a chunk in a file."""

    def flip_in_file(directory: Path) -> None:
        path = files(directory)[place]
        octets = bytearray(path.read_bytes())
        octets[StreamSegment.open(path)._positions[chunk] + octet] ^= 4
        path.write_bytes(octets)

    return flip_in_file


@pytest.mark.parametrize(
    ("hurt", "missing"),
    [
        (flip(1, 2, 300), range(30, 35)),
        (flip(1, 3, 300), range(35, 40)),
        (flip(0, 1, 30), range(5, 10)),
        (flip(-1, 3, 300), range(95, 100)),
        (delete(2), range(40, 60)),
        (delete(-1), range(80, 100)),
        (cut(2), range(50, 60)),
    ],
)
def test_damage_is_found_without_the_broker_as_readers_find_it(
    tmp_path: Path, hurt: Callable[[Path], None], missing: range
) -> None:
    directory, index = tmp_path / "streams", tmp_path / "jumpmq.db"
    known = {7: make(directory)}
    names = [path.relative_to(tmp_path).as_posix() for path in files(directory)]
    lengths = {name: StreamSegment.open(tmp_path / name).size for name in names}
    streams = expected(index)
    assert not [*lost(tmp_path, streams)] and not any(is_damaged(tmp_path, *one) for one in lengths.items())
    hurt(directory)
    found = [*lost(tmp_path, streams)]
    assert offsets(found) == set(missing)
    assert any(is_damaged(tmp_path, *one) for one in lengths.items()) is (len(files(directory)) == len(names))
    told: list[str] = []
    opened = StreamFiles(directory, known=known, on_loss=told.append)
    assert set(bodies(opened.open(7, "queue number 7"))) == set(range(COUNT)) - set(missing)
    opened.close()
    if hurt.__name__ == "flip_in_file":
        assert found == told


def test_a_search_for_damage_may_be_stopped_before_each_file(tmp_path: Path) -> None:
    directory = tmp_path / "streams"
    make(directory)
    flip(0, 1, 30)(directory)
    flip(1, 2, 300)(directory)
    stopped = iter([False, True])
    found = [*lost(tmp_path, expected(tmp_path / "jumpmq.db"), lambda: next(stopped))]
    assert offsets(found) == set(range(5, 10))


def test_an_empty_stream_has_no_damage(tmp_path: Path) -> None:
    Opened(tmp_path).close()
    streams = expected(tmp_path / "jumpmq.db")
    assert [(one.number, one.end) for one in streams] == [(7, 0)] and not [*lost(tmp_path, streams)]


def offsets(losses: list[str]) -> set[int]:
    """Return the reported offsets of losses."""
    found: set[int] = set()
    for loss in losses:
        for first, last in re.findall(r"offsets (\d+) to (\d+)", loss):
            found.update(range(int(first), int(last) + 1))
    return found


def test_the_files_of_another_stream_are_not_served(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    mine, others = make(tmp_path / "one" / "streams"), make(tmp_path / "other" / "streams")
    assert mine.bounds.salt != others.bounds.salt
    directory = tmp_path / "one" / "streams"
    shutil.rmtree(directory / "7")
    shutil.copytree(tmp_path / "other" / "streams" / "7", directory / "7")
    (finding,) = check(directory / "7", mine)
    assert "files of another stream" in finding
    losses: list[str] = []
    found = StreamFiles(directory, known={7: mine}, on_loss=losses.append)
    log = found.open(7)
    assert (log.end, bodies(log), offsets(losses)) == (COUNT, [], set(range(COUNT)))
    found.close()
    assert len(list((tmp_path / "one" / "unclaimed-streams" / "7").glob("*.segment"))) == 5


def test_what_retention_lets_go_of_is_not_missed(tmp_path: Path) -> None:
    """Files released by retention are not reported: the store records the release before the deletion."""
    directory = tmp_path / "streams"
    make(directory)
    opened = Opened(tmp_path)
    before = opened.log.first
    opened.log.retain(max_bytes=6000, oldest=None)
    assert opened.log.first > before and len(files(directory)) == 5
    for commits in (False, True):  # a crash before the store has recorded the release, and after it
        if commits:
            opened.commit()
        crashed = tmp_path / str(commits)
        shutil.copytree(tmp_path / "streams", crashed / "streams")
        killed_now(tmp_path, crashed)
        found = Opened(crashed)
        assert found.log.first == (opened.log.first if commits else before)
        assert bodies(found.log) == list(range(found.log.first, COUNT))
        assert len(files(crashed / "streams")) == found.log.segment_count and not found.losses
        found.close()
    opened.close()


def test_one_bit_anywhere_is_served_or_named(tmp_path: Path) -> None:
    directory = tmp_path / "streams"
    known = make(directory)
    chance = random.Random(3)
    for _ in range(150):
        path = chance.choice(files(directory))
        whole = path.read_bytes()
        octets = bytearray(whole)
        place = chance.randrange(128) if chance.random() < 0.5 else chance.randrange(len(whole))
        octets[place] ^= 1 << chance.randrange(8)
        path.write_bytes(octets)
        losses: list[str] = []
        found = StreamFiles(directory, known={7: known}, on_loss=losses.append)
        log = found.open(7)
        served = bodies(log)
        assert log.end == COUNT and len(served) == len(set(served))
        missing = set(range(COUNT)) - set(served)
        assert len(missing) <= 20 and missing <= offsets(losses), (path, place)
        found.close()
        for one in (directory / "7").glob("*.damaged"):
            one.unlink()
        path.write_bytes(whole)


def test_a_damaged_chunk_of_the_log_harms_no_file(tmp_path: Path) -> None:
    """A damaged chunk in the log names a wrong position; no stream file is made or cut for it."""
    opened = Opened(tmp_path / "before")
    opened.log.segment_bytes = 5000
    for number in range(COUNT):
        opened.append(message(number, 100))
    after = tmp_path / "after"
    shutil.copytree(opened.directory, after, ignore=shutil.ignore_patterns("*.new"))
    opened.close()
    piece = Recovery(after, Files(), lambda settled: None).streams()[7].pieces[-2]  # the last commit would be left out
    place = CHUNK_AT.pack(piece.segment - 3, piece.position)
    with piece.log.open("r+b") as log:
        log.seek(piece.offset + BLOCK.size)
        log.write(place)
    names = files(after / "streams")
    again = Opened(after)
    assert bodies(again.log) == list(range(COUNT)) and again.losses == []
    assert files(after / "streams") == names
    again.close()


def test_a_crash_after_files_came_and_before_the_store_knows_of_them_keeps_them(tmp_path: Path) -> None:
    """After a crash, files received from a remote home stay, though the index still records an empty stream."""
    source = Opened(tmp_path / "source")
    for number in range(COUNT):
        source.append(message(number))
    left = source.files.hand_over(source.log, {}, leave=True)
    source.commit()
    opened = Opened(tmp_path / "before")
    opened.store.delete(STREAM, "7")  # as before the arrival of a stream's files
    opened.commit()
    assert opened.files.take_over(7, left).end == COUNT
    opened.work_until(lambda: not opened.store._upkeep.has_snapshot)  # the index is written
    shutil.copytree(opened.directory, tmp_path / "killed", ignore=shutil.ignore_patterns("*.new"))
    with contextlib.closing(sqlite3.connect(tmp_path / "killed" / "jumpmq.db")) as index, index:
        kept = index.execute("SELECT key, value FROM definition WHERE kind = ?", [STREAM]).fetchall()
    assert kept == [("7", Bounds(0, 0, 0, 0, 0, is_exact=True).encode())]
    killed = Opened(tmp_path / "killed")
    assert bodies(killed.log) == list(range(COUNT)) and killed.losses == []
    killed.append(message(COUNT))
    killed.close()
    again = Opened(tmp_path / "killed")
    assert bodies(again.log) == list(range(COUNT + 1)) and again.losses == []
    for one in again, opened, source:
        one.close()


@pytest.mark.parametrize("clean", [False, True])
def test_the_index_does_not_pass_chunks_of_a_stream_before_it_is_open(tmp_path: Path, clean: bool) -> None:
    """The index does not pass chunks of unopened streams: a node commits an epoch before restoring queues."""
    opened = Opened(tmp_path)
    opened.append(message(0), message(1))
    opened.close(clean=False)
    early = StoreOpened(tmp_path)
    early.store.put("run", "epoch", 2)
    early.commit()
    early.work_until(lambda: not early.store._upkeep.has_snapshot)
    early.store.close(clean=clean)
    again = Opened(tmp_path)
    assert bodies(again.log) == [0, 1] and again.losses == []
    again.close()
    last = Opened(tmp_path)
    assert bodies(last.log) == [0, 1] and last.losses == []
    last.close()
