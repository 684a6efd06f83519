"""Streams of remote homes, imported through the local log: any size of piece, damage, later starts."""

from pathlib import Path

import pytest

from jumpmq.amqp.messages import Message
from jumpmq.store import Store
from jumpmq.store.stream_bounds import Bounds, HandedFiles
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_import import ChunkCutter, ImportedChunk
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import encode, messages_of

THERE, HERE = (1 << 48) + 7, 9
"""Numbers of a stream at the former home, and here."""


def chunks(*counts: int, first: int = 0, salt: int = 5) -> list[bytes]:
    """Return chunks of so many messages each, as in a segment; bodies are the offsets."""
    found, position = [], 0
    for count in counts:
        messages = [Message("", b"s", b"", b"%d" % number, True, 1.0) for number in range(first, first + count)]
        place, octets = encode(messages, first, position, position, salt)
        found.append(b"".join(octets))
        first, position = first + count, position + place.length
    return found


def cut(octets: bytes, size: int, cutter: ChunkCutter) -> list[ImportedChunk]:
    pieces = range(0, len(octets), size)
    return [one for at in pieces for one in cutter.add(octets[at : at + size], last=at + size >= len(octets))]


@pytest.mark.parametrize("size", [1, 63, 64, 1000, 1 << 20])
def test_chunks_are_whole_again_whatever_pieces_they_come_in(size: int) -> None:
    segment = chunks(3, 1, 40, 2)
    cutter = ChunkCutter(0, begins=True)
    found = cut(b"".join(segment), size, cutter)
    assert [one.octets for one in found] == segment
    assert [one.begins for one in found] == [True, False, False, False] and not cutter.is_damaged


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("at", [0, 5, 9, 40, 70, 200])
def test_another_segment_begins_behind_damage(size: int, at: int) -> None:
    first, second, third = chunks(3, 2, 4)
    damaged = bytearray(second)
    damaged[at] ^= 255
    cutter = ChunkCutter(0, begins=True)
    found = cut(first + damaged + third, size, cutter)
    assert [(one.octets, one.begins) for one in found] == [(first, True), (third, True)] and cutter.is_damaged
    cutter = ChunkCutter(5, begins=False)
    assert cut(first + second + third, size, cutter) == [found[1]._replace(begins=False)], "what is there is left out"


class Home:
    """A store with an imported stream."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory, on_commit=lambda receipt: None, segment_bytes=1 << 14)
        self.store.definitions()
        self.files = StreamFiles(
            directory / "streams",
            store=self.store,
            known=self.store.streams,
            sources=self.store.stream_sources,
            on_loss=self.store.losses.add,
        )

    def take(self, first: int, octets: bytes) -> None:
        """Import the segment with the given first offset, and wait until it is on disk."""
        log = self.files.importing(THERE, first)
        for chunk in cut(octets, 1000, ChunkCutter(log.end, begins=True)):
            self.files.import_chunks(log, [chunk])
            self.store.wait(self.store.flush())

    def adopt(self, end: int) -> StreamLog:
        self.files.open(HERE)
        log = self.files.adopt(HERE, THERE, HandedFiles(Bounds(0, end, 1, 0, 5), {"g": {"offset": 3}}))
        self.store.wait(self.store.flush())
        return log

    def close(self, *, clean: bool) -> None:
        self.store.close(clean=clean)
        self.files.close()


def bodies(log: StreamLog) -> list[int]:
    return [int(message.body) for batch in log.read(0, 1 << 40) for message in messages_of(batch)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_at_any_point_goes_on(tmp_path: Path, clean: bool) -> None:
    home = Home(tmp_path)
    home.take(10, b"".join(chunks(30, 30, first=10)))
    home.close(clean=clean)
    for path in () if clean else tmp_path.glob("streams/*/*"):  # names may be all that a power failure has left
        path.write_bytes(b"")
    home = Home(tmp_path)
    assert home.files.all_coming() == [THERE]
    home.files.set_unclaimed_aside()
    assert bodies(home.files.importing(THERE, 10)) == list(range(10, 70))
    home.take(70, b"".join(chunks(30, first=70, salt=6)))  # retention has let go of the first segment
    assert bodies(home.adopt(100)) == list(range(70, 100))
    home.close(clean=clean)
    home = Home(tmp_path)
    log = home.files.open(HERE)
    assert log.handed is not None and log.handed.offsets == {"g": {"offset": 3}} and not home.files.all_coming()
    home.files.forget_handed(HERE, log)
    home.files.set_unclaimed_aside()
    home.files.append(log, [Message("", b"s", b"", b"100", True, 1.0)])
    home.store.wait(home.store.flush())
    assert bodies(log) == list(range(70, 101)) and not home.store.losses
    home.close(clean=clean)
    home = Home(tmp_path)
    log = home.files.open(HERE)
    assert bodies(log) == list(range(70, 101)) and log.handed is None
    home.files.remove(HERE)
    home.store.wait(home.store.flush())
    home.files.delete(home.files.take_removed())
    home.close(clean=clean)
    assert not list(tmp_path.glob("streams/*"))
    assert not Home(tmp_path).files.all_coming()


def test_what_is_lost_is_reported_and_its_offsets_are_not_given_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.take(0, chunks(10, first=20)[0] + bytes(640) + chunks(10, first=40)[0])
    log = home.adopt(70)
    assert bodies(log) == [*range(20, 30), *range(40, 50)] and log.end == 70
    home.close(clean=False)
    home = Home(tmp_path)
    log = home.files.open(HERE)
    assert bodies(log) == [*range(20, 30), *range(40, 50)] and log.end == 70
    assert any("offsets 50 to 69 are lost" in loss for loss, _ in home.store.losses.listed())
    home.close(clean=True)
