"""Temporarily unreadable stream files, or files truncated by other programs, cause no cut and no skipped row."""

import errno
import os
from pathlib import Path

import pytest
from tests.store.stream_opened import Opened, bodies, message

from jumpmq.store import stream_log
from jumpmq.store.errors import StoreError, Unreadable
from jumpmq.store.file_octets import FileOctets
from jumpmq.store.stream_files import StreamFiles


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Closed streams, including a stream of three segments with 60 messages."""
    opened = Opened(tmp_path)
    opened.log.segment_bytes = 5000
    for first in range(0, 60, 5):
        opened.append(*(message(number, 100) for number in range(first, first + 5)))
    opened.close()
    assert len(segments(tmp_path / "streams")) == 3
    return tmp_path / "streams"


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "7").glob("*.segment"))


class Failing:
    """Fails reads of files with a given text in their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name: str | None = None
        self.behind = 0
        self._read = FileOctets.read
        monkeypatch.setattr(FileOctets, "read", lambda file, position, length: self._reads(file, position, length))

    def _reads(self, file: FileOctets, position: int, length: int) -> bytes:
        path = str(Path(f"/proc/self/fd/{file._descriptor}").readlink())
        if self.name is not None and self.name in path and position + length > self.behind:
            raise OSError(errno.EIO, "Input/output error")
        return self._read(file, position, length)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


def test_a_last_segment_that_cannot_be_read_is_not_cut(directory: Path, failing: Failing) -> None:
    before = [path.read_bytes() for path in segments(directory)]
    for behind in (0, 1000, 3000):
        failing.name, failing.behind = segments(directory)[-1].name, behind
        files = StreamFiles(directory)
        with pytest.raises(StoreError, match=r"segment cannot be read: Input/output error; the file is kept unchanged"):
            files.open(7)
        files.close()
    assert [path.read_bytes() for path in segments(directory)] == before
    failing.name = None
    opened = Opened(directory.parent)
    assert bodies(opened.log) == list(range(60))
    opened.append(message(60))
    assert bodies(opened.log) == list(range(61))
    opened.close()


@pytest.mark.parametrize("behind", [0, 2000])
def test_what_cannot_be_read_now_is_read_later(directory: Path, failing: Failing, behind: int) -> None:
    losses: list[str] = []
    files = StreamFiles(directory, on_loss=losses.append)
    log = files.open(7, "a stream")
    failing.name, failing.behind = segments(directory)[1].name, behind
    for _ in range(3):
        with pytest.raises(Unreadable):
            bodies(log, 0, 59)
        with pytest.raises(Unreadable):
            for offset in range(20, 40):
                log.chunk_from(offset)
    (loss,) = losses
    assert "segment cannot be read: Input/output error" in loss and loss.endswith("of a stream")
    assert list(stream_log.check(directory / "7")) == [loss.removesuffix(" of a stream")]
    assert bodies(log, 0, 19) == list(range(20))
    log.retain(None, oldest=0.0)  # files of unknown age stay
    failing.name = None
    assert bodies(log) == list(range(60))
    assert [log.chunk_from(offset).first for offset in (0, 20, 59)] == [0, 20, 55]  # type: ignore[union-attr]
    files.close()


def test_age_deletes_no_segment_whose_age_cannot_be_read(directory: Path, failing: Failing) -> None:
    files = StreamFiles(directory, on_loss=lambda loss: None)
    log = files.open(7)
    failing.name = segments(directory)[0].name
    log.retain(None, oldest=1e12)
    assert (log.first, len(segments(directory))) == (0, 3)
    failing.name = None
    log.retain(None, oldest=1e12)
    assert (log.first, len(segments(directory))) == (40, 1)
    files.close()


def test_a_file_that_is_cut_while_it_is_used_is_damaged_and_ends_nothing(directory: Path) -> None:
    losses: list[str] = []
    files = StreamFiles(directory, on_loss=losses.append)
    log = files.open(7)
    assert bodies(log) == list(range(60))  # with known chunks, and mapped files
    for path in segments(directory):
        os.truncate(path, 700)
    log._cache.clear()
    assert bodies(log) == []
    assert len(losses) == 12 and "damaged" in losses[0]
    assert log.chunk_from(0) is None
    files.close()


def test_segments_that_are_retired_are_read_to_their_end(directory: Path) -> None:
    files = StreamFiles(directory)
    log = files.open(7)
    reading = log.read(0, 59)
    first = next(reading)
    log.retain(1, None)
    assert len(segments(directory)) == 1
    found = [int(body) for batch in (first, *reading) for body in batch.column("body").to_pylist()]
    assert found == list(range(60))
    files.close()
