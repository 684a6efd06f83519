"""Streams on disk: commits survive, a crash leaves a clean prefix, retention drops whole segments."""

import errno
import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.stream_opened import START, Opened, bodies, message, segment_files
from tests.waiting import until

from jumpmq.store.files import Files
from jumpmq.store.stream_bounds import Known
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import HEADER, MAX_BYTES, Chunk, messages_of


@pytest.fixture
def open_streams(tmp_path: Path) -> Iterator[Callable[[], Opened]]:
    """Open the streams of one directory repeatedly; earlier opened streams are closed."""
    opened: list[Opened] = []

    def open_again() -> Opened:
        if opened:
            opened.pop().close()
        opened.append(Opened(tmp_path))
        return opened[-1]

    yield open_again
    while opened:
        opened.pop().close()


def test_what_is_committed_is_there_again(open_streams: Callable[[], Opened]) -> None:
    opened = open_streams()
    opened.append(*(message(number) for number in range(5000)))
    opened.append(message(5000))
    for again in (opened, open_streams()):
        assert (again.log.first, again.log.end, again.log.last_chunk) == (0, 5001, 5000)
        assert bodies(again.log) == list(range(5001))
        assert bodies(again.log, 4090, 4100) == list(range(4090, 4101))
        (one,) = messages_of(next(again.log.read(4321, 4321)))
        expected = message(4321)
        assert (one.exchange, one.routing_key, one.properties, one.body, one.published_at) == (
            "e", expected.routing_key, expected.properties, expected.body, expected.published_at,
        )  # fmt: skip
    again.append(message(5001))
    assert bodies(open_streams().log, 4999) == [4999, 5000, 5001]


def test_large_headers_make_more_chunks(open_streams: Callable[[], Opened]) -> None:
    opened = open_streams()
    messages = [message(number) for number in range(4)]
    for one in messages:
        one.properties = bytes(MAX_BYTES // 2 - 100)
    opened.append(*messages)
    assert [chunk.message_count for chunk in chunks(opened.log)] == [2, 2]


def test_nothing_is_seen_before_it_is_on_disk(open_streams: Callable[[], Opened]) -> None:
    opened = open_streams()
    opened.append(message(0))
    opened.files.append(opened.log, [message(1)])
    assert (opened.log.end, bodies(opened.log)) == (1, [0])
    assert opened.store.staged_bytes == 10


def test_a_stream_is_deleted_while_a_commit_is_written_and_more_is_staged_for_it(
    open_streams: Callable[[], Opened],
) -> None:
    opened = open_streams()
    other = opened.files.open(8)
    opened.files.append(opened.log, [message(0)])
    opened.store.flush()
    opened.files.append(opened.log, [message(1)])
    opened.store.flush()  # the writer is busy: this commit is laid out later, and is empty then
    opened.remove(7)
    opened.files.append(other, [message(0)])
    opened.commit()
    assert (bodies(other), opened.store.staged_bytes, opened.errors.empty()) == ([0], 0, True)


def test_a_time_is_found(open_streams: Callable[[], Opened]) -> None:
    opened = open_streams()
    opened.log.segment_bytes = 1
    for first in range(0, 30, 10):
        opened.append(*(message(number) for number in range(first, first + 10)))
    found = {START - 5: 0, START: 0, START + 3.5: 4, START + 10: 10, START + 29: 29, START + 29.5: 30}
    for log in (opened.log, open_streams().log):
        assert {time: log.offset_of(time) for time in found} == found


@pytest.mark.parametrize("seed", range(8))
def test_files_of_older_versions_have_a_clean_prefix_after_a_crash(
    open_streams: Callable[[], Opened], tmp_path: Path, seed: int
) -> None:
    """After a crash, files of older versions, which alone mark the end of a stream, have a clean prefix."""
    opened = open_streams()
    ends, number = [0], 0
    for _ in range(6):
        count = random.Random(seed * 100 + number).randrange(1, 40)
        opened.append(*(message(one) for one in range(number, number + count)))
        number += count
        ends.append(opened.log.size)
    opened.close()
    (path,) = segment_files(tmp_path)
    octets = bytearray(path.read_bytes())
    place = random.Random(seed).randrange(len(octets))
    if seed % 2:
        del octets[place:]
    else:  # of the last commit, some arrived
        place = random.Random(seed).randrange(ends[-2], len(octets))
        octets[place] ^= 0xFF
    path.write_bytes(octets)
    files = StreamFiles(tmp_path / "streams")
    log = files.open(7)
    kept = bodies(log)
    assert kept == list(range(len(kept)))
    assert log.end == len(kept)
    whole = max(end for end in ends if end <= place)
    assert log.size == whole or octets[whole : whole + 64] == bytes(64) or log.size > place
    files.append(log, [message(len(kept))])
    files.flush()
    assert bodies(log) == list(range(len(kept) + 1))
    files.close()


def test_retention_drops_whole_segments_and_never_the_last(open_streams: Callable[[], Opened]) -> None:
    opened = open_streams()
    opened.log.segment_bytes = 1
    begun: list[bool] = []
    opened.log.listen(begun.append)
    for first in range(0, 40, 10):
        opened.append(*(message(number, size=1000) for number in range(first, first + 10)))
    assert begun == [True] * 4
    kept = list(opened.log.read(0, 9))
    opened.log.retain(25_000, None)
    assert (opened.log.first, bodies(opened.log)) == (10, list(range(10, 40)))
    opened.log.retain(None, START + 25)
    assert opened.log.first == 20
    opened.log.retain(0, START + 1000)
    assert bodies(opened.log) == list(range(30, 40))
    assert [int(body) for body in kept[0].column("body").to_pylist()] == list(range(10))  # open readers read on
    again = open_streams().log
    assert (again.first, again.end) == (30, 40)


@pytest.mark.parametrize("place", [0, 20, 200])
@pytest.mark.parametrize("chunk", [0, 1, 3, 4])
def test_what_is_damaged_is_set_aside_and_the_rest_is_read(
    open_streams: Callable[[], Opened], tmp_path: Path, caplog: pytest.LogCaptureFixture, chunk: int, place: int
) -> None:
    """A damaged file is set aside and the rest is read: a header or body, in the first or last of two files."""
    opened = open_streams()
    for first in range(0, 60, 10):
        opened.append(*(message(number, 100) for number in range(first, first + 10)))
        length = opened.log.size // (first // 10 + 1)
        opened.log.segment_bytes = 2 * length + 1
    path = segment_files(tmp_path)[chunk // 3]
    opened.close()
    octets = bytearray(path.read_bytes())
    octets[chunk % 3 * length + place] ^= 0xFF
    path.write_bytes(octets)
    log = open_streams().log
    expected = [number for number in range(60) if number // 10 != chunk]
    assert bodies(log) == expected
    assert [one.first for one in chunks(log)] == expected[::10]
    assert f"offsets {chunk * 10} to {chunk * 10 + 9} are lost" in caplog.text
    assert (log.first, log.end) == (0, 60)


def chunks(log: StreamLog) -> list[Chunk]:
    """Return the chunks given to a reader, from the first offset on."""
    found: list[Chunk] = []
    offset = 0
    while (chunk := log.chunk_from(offset)) is not None:
        found.append(chunk)
        offset = chunk.first + chunk.message_count
    return found


def without_header_checksums(octets: bytearray, places: list[int]) -> None:
    """Return chunks without header checksums, as older versions wrote them."""
    for place in places:
        end = place + HEADER.size + int.from_bytes(octets[place + 8 : place + 12], "little")
        octets[place + 52 : place + 56] = bytes(4)
        octets[place + 4 : place + 8] = zlib.crc32(octets[place + 8 : end]).to_bytes(4, "little")


@pytest.mark.parametrize("older", [False, True], ids=["today", "older"])
def test_one_bit_of_a_chunk_costs_no_other_chunk(
    open_streams: Callable[[], Opened], tmp_path: Path, caplog: pytest.LogCaptureFixture, older: bool
) -> None:
    opened, places = open_streams(), []
    for first in range(0, 100, 10):
        places.append(opened.log.size)
        opened.append(*(message(number) for number in range(first, first + 10)))
    known = {7: Known(opened.log.bounds._replace(is_exact=not older))}
    opened.close()
    (path,) = segment_files(tmp_path)
    whole = bytearray(path.read_bytes())
    if older:
        without_header_checksums(whole, places)
    chance = random.Random(5)
    bits = [*range(0, 56 * 8, 3), *(chance.randrange(56 * 8, (places[4] - places[3]) * 8) for _ in range(10))]
    for bit in bits:
        octets = bytearray(whole)
        octets[places[3] + bit // 8] ^= 1 << bit % 8
        path.write_bytes(octets)
        caplog.clear()
        files = StreamFiles(tmp_path / "streams", known=known)
        log = files.open(7)
        found = bodies(log)
        assert [one for one in found if not 30 <= one < 40] == [*range(30), *range(40, 100)], bit
        if len(found) < 100:
            assert "offsets 30 to 39 are lost" in caplog.text, bit
        files.append(log, [message(100)])
        files.flush()
        again = {7: Known(log.bounds._replace(is_exact=not older))}
        files.close()
        files = StreamFiles(tmp_path / "streams", known=again)
        assert bodies(files.open(7))[-61:] == [*range(40, 101)], bit
        files.close()


def test_a_removed_stream_is_there_until_that_is_on_disk(open_streams: Callable[[], Opened], tmp_path: Path) -> None:
    opened = open_streams()
    opened.append(message(0))
    opened.files.append(opened.log, [message(1)])
    opened.files.remove(7)
    removed = opened.files.take_removed()
    opened.commit()
    assert (removed, len(segment_files(tmp_path))) == ([opened.log], 1)
    opened.files.delete(removed)
    opened.close()
    assert list((tmp_path / "streams").iterdir()) == []
    opened = Opened(tmp_path)
    assert (opened.log.end, opened.losses) == (0, [])
    opened.close()


def test_the_disk_gets_the_room_of_a_removed_stream_that_was_read(
    open_streams: Callable[[], Opened], tmp_path: Path
) -> None:
    opened = open_streams()
    opened.append(message(0))
    assert bodies(opened.log) == [0]
    opened.files.append(opened.log, [message(1)])
    opened.store.flush()
    opened.remove(7)
    del opened.log
    stream = tmp_path / "streams" / "7"
    until(lambda: not stream.exists())
    opened.work_until(lambda: not any(str(file).startswith(f"{stream}/") for file in open_files()))


def open_files() -> list[Path]:
    """Return the open files of this process, memory-mapped files included."""
    return [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


def test_a_stream_that_is_removed_while_it_is_written_goes_after_that(
    open_streams: Callable[[], Opened], tmp_path: Path
) -> None:
    opened = open_streams()
    opened.files.append(opened.log, [message(0)])
    opened.store.flush()
    opened.remove(7)
    opened.close()
    assert list((tmp_path / "streams").iterdir()) == []


def test_streams_without_a_definition_are_moved_aside_and_never_overwritten(
    open_streams: Callable[[], Opened], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_streams()
    opened.append(message(0))
    for text in ("first", "second", "third"):
        (tmp_path / "streams" / "8").mkdir()
        (tmp_path / "streams" / "8" / "segment").write_text(text)
        opened.files.set_unclaimed_aside()
    (tmp_path / "streams" / "9").mkdir()
    (tmp_path / "streams" / "notes.txt").write_text("an operator's")
    opened.files.set_unclaimed_aside()
    assert {path.name for path in (tmp_path / "streams").iterdir()} == {"7", "notes.txt"}
    unclaimed = tmp_path / "unclaimed-streams"
    assert {path.name: (path / "segment").read_text() for path in unclaimed.iterdir()} == {
        "8": "first",
        "8-2": "second",
        "8-3": "third",
    }
    assert [str(unclaimed / name) in caplog.text for name in ("8", "8-2", "8-3", "9")] == [True, True, True, False]


def test_a_stream_that_cannot_be_moved_aside_stays(
    open_streams: Callable[[], Opened], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_streams()
    (tmp_path / "unclaimed-streams").write_text("in the way")
    (tmp_path / "streams" / "8").mkdir()
    (tmp_path / "streams" / "8" / "segment").write_text("kept")
    opened.files.set_unclaimed_aside()
    assert (tmp_path / "streams" / "8" / "segment").read_text() == "kept"
    assert "cannot be moved aside" in caplog.text


def test_a_commit_that_fails_is_tried_again(open_streams: Callable[[], Opened], tmp_path: Path) -> None:
    opened = open_streams()
    other = opened.files.open(8)
    directory = tmp_path / "streams" / "7"
    directory.rmdir()
    directory.write_text("in the way")
    for log in (other, opened.log):
        opened.files.append(log, [message(0)])
    receipt = opened.store.flush()
    opened.work_until(lambda: not opened.errors.empty())
    assert "cannot write" in str(opened.errors.get()) and opened.store.committed < receipt
    assert (bodies(other), other.end) == ([], 0)
    directory.unlink()
    directory.mkdir()
    for log in (other, opened.log):
        opened.files.append(log, [message(1)])
    opened.commit()
    for again in (opened, open_streams()):
        assert bodies(again.log) == [0, 1]
    assert bodies(again.files.open(8)) == [0, 1]


def test_a_stream_can_be_declared_while_its_directory_cannot_be_made(tmp_path: Path) -> None:
    in_the_way = tmp_path / "streams"
    in_the_way.write_text("in the way")
    opened = Opened(tmp_path)
    opened.files.append(opened.log, [message(0)])
    receipt = opened.store.flush()
    opened.work_until(lambda: not opened.errors.empty())
    in_the_way.unlink()
    opened.work_until(lambda: opened.store.committed >= receipt)
    opened.append(message(1))
    opened.close()
    opened = Opened(tmp_path)
    assert bodies(opened.log) == [0, 1]
    opened.close()


class NeverCut(Files):
    """A disk that fails to cut files while :attr:`fails` is set."""

    fails = False

    def truncate(self, file: int, size: int) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(file, size)


def test_a_full_segment_that_cannot_be_cut_is_left_as_it_is(tmp_path: Path) -> None:
    disk = NeverCut()
    opened = Opened(tmp_path, disk)
    opened.log.segment_bytes = 2000
    opened.append(message(0))
    disk.fails = True
    for number in range(1, 30):
        opened.append(message(number, 300))
    assert opened.log.segment_count > 3 and opened.errors.empty()
    opened.close()
    opened = Opened(tmp_path)
    assert bodies(opened.log) == list(range(30))
    opened.append(message(30))
    assert bodies(opened.log)[-1] == 30
    opened.close()


def test_what_a_crash_has_left_is_cut_before_more_is_written(tmp_path: Path) -> None:
    disk = NeverCut()
    opened = Opened(tmp_path, disk)
    opened.append(message(0))
    opened.close()
    opened = Opened(tmp_path, disk)
    disk.fails = True
    files = len(list(Path("/proc/self/fd").iterdir()))
    opened.files.append(opened.log, [message(1)])
    receipt = opened.store.flush()
    for _ in range(3):
        opened.work_until(lambda: not opened.errors.empty())
        opened.errors.get()
    assert len(list(Path("/proc/self/fd").iterdir())) <= files + 2  # the log's
    disk.fails = False
    opened.work_until(lambda: opened.store.committed >= receipt)
    assert bodies(opened.log) == [0, 1]
    opened.close()


class Unopened(Files):
    """Files of streams that cannot be opened while an error is set."""

    error = 0

    def open(self, path: Path) -> int:
        if self.error and path.suffix == ".segment":
            raise OSError(self.error, os.strerror(self.error))
        return super().open(path)

    def sync_directory(self, path: Path) -> None:
        if self.error and "streams" in path.parts:
            raise OSError(self.error, os.strerror(self.error))
        super().sync_directory(path)


def test_want_of_descriptors_puts_the_index_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without free descriptors, the index is postponed and the broker goes on."""
    disk = Unopened()
    opened = Opened(tmp_path, disk, segment_bytes=16 << 10)
    disk.error = errno.EMFILE
    number = 0
    while "cannot write the index" not in caplog.text:
        opened.append(message(number, 2000))
        number += 1
    disk.error = 0
    while len([*(tmp_path / "log").glob("*.log")]) > 3:
        opened.append(message(number, 2000))
        number += 1
    assert bodies(opened.log) == list(range(number))
    opened.close()


class Noting(Files):
    """Files with a record of syncs."""

    def __init__(self) -> None:
        self.synced: set[str] = set()

    def sync(self, file: int) -> None:
        super().sync(file)
        self.synced.add(Path(f"/proc/self/fd/{file}").readlink().name)


def test_files_are_synced_before_another_home_has_them(tmp_path: Path) -> None:
    """Files are synced before another home gets them, also files whose sync was left to the next index."""
    disk = Noting()
    opened = Opened(tmp_path, disk)
    opened.log.segment_bytes = 5000
    for number in range(30):
        opened.append(message(number, 1000))
    opened.log.take_unsynced()  # as for an index to be written
    names = {path.name for path in segment_files(tmp_path)}
    disk.synced.clear()
    opened.files.hand_over(opened.log, {}, leave=True)
    assert len(names) > 2 and names <= disk.synced
    opened.close()
