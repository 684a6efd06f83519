"""Both writing threads produce the same octets, and report the same on failing disks."""

import errno
import os
import select
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.opened import make_messages
from tests.waiting import until

from jumpmq.store import _worker, worker
from jumpmq.store.files import Files
from jumpmq.store.records import Commit, messages_block, settled_block
from jumpmq.store.worker import StreamWrite, Write
from jumpmq.store.writer import WritingThread

STATM = Path("/proc/self/statm")


@pytest.fixture(params=["compiled", "plain"])
def pipe_and_worker(request: pytest.FixtureRequest) -> Iterator[tuple[int, WritingThread]]:
    readable, writable = os.pipe()
    made: WritingThread = _worker.Worker(writable) if request.param == "compiled" else worker.Worker(writable, Files())
    yield readable, made
    made.close()
    os.close(readable)
    os.close(writable)


def commit(number: int) -> Commit:
    """Commit small messages, large ones, many, and a settlement."""
    blocks = [
        messages_block(1, make_messages(1, 3), new=True),
        messages_block(2, make_messages(1, 2, body=lambda seq: bytes([seq]) * 100_001), new=True),
        messages_block(3, make_messages(5, 2000), new=False),
        messages_block(4, make_messages(1, 1500, body=lambda seq: bytes(5000)), new=False),
        settled_block([(1, [(1, 2), (4, 4)])]),
    ]
    return Commit(number, blocks, sum(block.length for block in blocks))


def written(readable: int, worker: WritingThread, write: Write) -> tuple[int, bool]:
    worker.submit(write)
    assert select.select([readable], [], [], 10)[0]
    os.read(readable, 1)
    taken = worker.take()
    assert taken is not None and worker.take() is None
    return taken[:2]


def performed(readable: int, worker: WritingThread, write: Write) -> tuple[int, bool]:
    return worker.perform(write)[:2]


@pytest.mark.parametrize("write", [written, performed])
def test_what_is_written_is_whole(
    pipe_and_worker: tuple[int, WritingThread],
    tmp_path: Path,
    write: Callable[[int, WritingThread, Write], tuple[int, bool]],
) -> None:
    expected = b"".join(commit(7).finalize(99))
    with (tmp_path / "file").open("w+b") as file:
        for offset, allocate in ((64, (0, 1 << 20)), (64 + len(expected), None)):
            error, _ = write(*pipe_and_worker, Write(file.fileno(), offset, commit(7), 99, allocate))
            assert error == 0
        file.seek(0)
        octets = file.read()
    assert octets == bytes(64) + expected + expected


def test_zeros_follow_where_they_are_wanted(pipe_and_worker: tuple[int, WritingThread], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (2 << 20))
    length = commit(1).length
    with (tmp_path / "file").open("r+b") as file:
        assert written(*pipe_and_worker, Write(file.fileno(), 0, commit(1), 0, None, zeros=5000)) == (0, True)
    octets = (tmp_path / "file").read_bytes()
    assert octets[length:] == bytes(5000) + b"x" * ((2 << 20) - length - 5000)


def test_octets_are_appended_as_they_are(pipe_and_worker: tuple[int, WritingThread], tmp_path: Path) -> None:
    readable, made = pipe_and_worker
    (tmp_path / "file").write_bytes(b"x" * 9)
    with (tmp_path / "file").open("r+b") as file, (tmp_path / "file").open("rb") as unwritable:
        for descriptor, expected in ((file.fileno(), (0, True)), (unwritable.fileno(), (errno.EBADF, False))):
            made.append(descriptor, 2, [b"abc", b"de"])
            assert select.select([readable], [], [], 10)[0]
            os.read(readable, 1)
            taken = made.take()
            assert taken is not None and taken[:2] == expected
    assert (tmp_path / "file").read_bytes() == b"xxabcdexx"


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is known of Linux alone")
def test_room_for_large_commits_goes_back_to_the_system(tmp_path: Path) -> None:
    """After a large commit, the buffer of four megabytes returns to the system."""
    readable, writable = os.pipe()
    compiled, large = _worker.Worker(writable), commit(1)
    with (tmp_path / "file").open("w+b") as file:
        assert written(readable, compiled, Write(file.fileno(), 0, large, 0, None)) == (0, True)
        before = resident()
        until(lambda: before - resident() > 3 << 20)
        assert written(readable, compiled, Write(file.fileno(), 0, large, 0, None)) == (0, True)
    compiled.close()


def resident() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_errors_are_reported(pipe_and_worker: tuple[int, WritingThread], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file:
        assert written(*pipe_and_worker, Write(file.fileno(), 0, commit(1), 0, None)) == (errno.EBADF, False)
    with Path("/dev/full").open("wb") as full:
        assert written(*pipe_and_worker, Write(full.fileno(), 0, commit(1), 0, None)) == (errno.ENOSPC, False)


class Watched(Files):
    """Files whose syncs record the positions reported so far."""

    def __init__(self, told: int) -> None:
        self.told, self.before_sync = told, b""

    def sync(self, file: int) -> None:
        self.before_sync = os.read(self.told, 100)


def test_a_position_is_told_before_the_sync(tmp_path: Path, told: tuple[int, int]) -> None:
    files, (readable, writable) = Watched(told[0]), os.pipe()
    plain = worker.Worker(writable, files, told[1])
    with (tmp_path / "file").open("w+b") as file:
        written(readable, plain, Write(file.fileno(), 0, commit(1), 0, None, position=0x0102030405060708))
    assert files.before_sync == (0x0102030405060708).to_bytes(8, sys.byteorder)
    plain.close()


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_who_does_not_take_positions_holds_up_nothing(kind: str, tmp_path: Path, told: tuple[int, int]) -> None:
    readable, writable = os.pipe()
    teller: WritingThread = (
        _worker.Worker(writable, told[1]) if kind == "compiled" else worker.Worker(writable, Files(), told[1])
    )
    with (tmp_path / "file").open("w+b") as file:

        def write(position: int) -> tuple[int, bool]:
            return written(readable, teller, Write(file.fileno(), 0, commit(1), 0, None, position=position))

        assert [write(position) for position in (7, 8)] == [(0, True)] * 2
        assert os.read(told[0], 100) == b"".join(position.to_bytes(8, sys.byteorder) for position in (7, 8))
        with pytest.raises(BlockingIOError):
            while True:
                os.write(told[1], bytes(8))
        assert write(9) == (0, True)
        os.dup2(os.open(os.devnull, os.O_RDONLY), told[0])  # no reader is left
        assert write(10) == (0, True)
    teller.close()


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is known of Linux alone")
def test_what_is_told_is_in_the_cache_of_the_system(tmp_path: Path, told: tuple[int, int]) -> None:
    """With reported positions, a large commit is written to the system's cache without a buffer."""
    readable, writable = os.pipe()
    compiled, large = _worker.Worker(writable, told[1]), commit(1)
    before = resident()
    with (tmp_path / "file").open("w+b") as file:
        assert written(readable, compiled, Write(file.fileno(), 0, large, 0, None)) == (0, True)
    assert resident() - before < 3 << 20
    compiled.close()


@given(st.binary(max_size=1000), st.integers(0, (1 << 32) - 1))
def test_checksums(octets: bytes, start: int) -> None:
    assert _worker.checksum(octets, start) == zlib.crc32(octets, start)


@pytest.mark.parametrize("write", [written, performed])
def test_what_streams_get_is_written_before_a_commit(
    pipe_and_worker: tuple[int, WritingThread],
    tmp_path: Path,
    write: Callable[[int, WritingThread, Write], tuple[int, bool]],
) -> None:
    with (
        (tmp_path / "one").open("w+b") as one,
        (tmp_path / "two").open("w+b") as two,
        (tmp_path / "log").open("w+b") as log,
    ):
        appends = [
            StreamWrite(one.fileno(), 3, [b"ab", b"c" * 5000], (0, 1 << 20)),
            StreamWrite(two.fileno(), 0, [b"de"], None),
        ]
        assert write(*pipe_and_worker, Write(log.fileno(), 0, commit(1), 7, None, 0, appends)) == (0, True)
        assert (one.read(5005), two.read()) == (b"\0\0\0ab" + b"c" * 5000, b"de")
        assert log.read() == b"".join(commit(1).finalize(7))


def test_nothing_follows_behind_an_error(pipe_and_worker: tuple[int, WritingThread], tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log, Path("/dev/full").open("wb") as full:
        appends = [StreamWrite(full.fileno(), 0, [b"a"], None)]
        write = Write(log.fileno(), 0, commit(1), 0, None, 0, appends)
        assert written(*pipe_and_worker, write) == (errno.ENOSPC, False)
        assert log.read() == b""
