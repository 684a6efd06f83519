"""Files of a copy: offered by a leader, received by a member, and installed despite failures."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest
from tests.store.opened import Opened, make_messages

from jumpmq.nodes.replicas import file_exchange
from jumpmq.nodes.replicas.coming_files import ComingFiles, set_aside, settle
from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.nodes.replicas.offered_files import OfferedFiles, damaged_segment, remove_offered
from jumpmq.replication.actions import Send
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Lead, Matched, Want
from jumpmq.replication.joining import Clear, Install, Put
from jumpmq.replication.lineage import before, end_of
from jumpmq.replication.replica import Replica
from jumpmq.store.errors import StoreError
from jumpmq.store.log import DIRECTORY, file_name
from jumpmq.store.stream_segment import encode


def chunk(first: int, position: int) -> bytes:
    """Return a chunk of a stream, in a commit of its own."""
    messages = make_messages(first + 1, first + 10, lambda seq: b"%d" % seq * 30_000)
    return b"".join(encode(messages, first, position, position, 7)[1])


WHOLE = chunk(0, 0)
TORN = chunk(10, len(WHOLE))
AHEAD = bytes(1 << 20)
"""Octets allocated behind the written part."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two sealed segments and a stream's file."""
    directory = tmp_path / "home"
    opened = Opened(directory, segment_bytes=1 << 16)
    for first in range(1, 241, 30):
        opened.store.append(1, make_messages(first, first + 29, lambda seq: b"%d" % seq * 300))
        opened.commit()
    opened.close()
    stream = directory / "streams" / "7" / "00000000000000000000.segment"
    stream.parent.mkdir(parents=True)
    stream.write_bytes(WHOLE + AHEAD)
    (directory / "streams" / "7.coming").mkdir()
    return directory


def test_a_copy_made_of_files_is_the_home(home: Path, tmp_path: Path) -> None:
    lineage = CopyDirectory(home, "log").lineage
    offered, directory = OfferedFiles(home, "disk"), tmp_path / "copies" / "1"
    manifest = offered.manifest(3, 0, lineage)
    assert [file.name.split("/")[0] for file in manifest.files] == ["jumpmq.db", *[DIRECTORY] * len(lineage), "streams"]
    old = CopyDirectory(directory, "log")
    old.note(3, 0)
    coming = ComingFiles(directory)
    for file in manifest.files:
        offset, crc = 0, 0
        while offset < file.length:
            piece = offered.piece(3, file.name, offset)
            assert piece.crc == crc32(piece.octets)
            coming.put(Put(file.name, offset, piece.octets))
            offset, crc = offset + len(piece.octets), crc32(piece.octets, crc)
        assert (offset, crc) == (file.length, file.crc)
    old.close()
    settle(directory)
    assert not (directory / "jumpmq.db").exists(), "what is not installed takes no place"
    for file in manifest.files:
        coming = ComingFiles(directory) if file is manifest.files[0] else coming
        for offset in range(0, file.length, 1 << 20):
            coming.put(Put(file.name, offset, offered.piece(3, file.name, offset).octets))
    coming.install(Install(manifest.kept, manifest.lineage), old.noted)
    settle(directory)
    found = CopyDirectory(directory, "log")
    assert (found.lineage, found.noted.disk, found.noted.mark) == (lineage, old.noted.disk, end_of(lineage))
    found.close()
    assert [path.name for path in directory.parent.iterdir()] == ["1"]
    name = manifest.files[-1].name
    assert (directory / name).read_bytes() == WHOLE
    opened = Opened(directory)
    assert sum(len(opened.store.read(batch)) for batch in opened.store.batches()[1]) == 240
    opened.close()


def test_a_stream_is_offered_up_to_its_last_whole_commit(home: Path) -> None:
    path = home / "streams" / "7" / "00000000000000000000.segment"
    for written in (0, 20, len(TORN) - 100):
        path.write_bytes(WHOLE + TORN[:written] + AHEAD)
        offered = OfferedFiles(home, "disk")
        stream = offered.manifest(1, 0, ()).files[-1]
        path.write_bytes(WHOLE + TORN + AHEAD)
        octets = b"".join(offered.piece(1, stream.name, at).octets for at in range(0, stream.length, 1 << 20))
        assert octets == WHOLE
        assert crc32(octets) == stream.crc


def test_a_manifest_that_takes_long_may_be_stopped(home: Path) -> None:
    with pytest.raises(OSError, match="canceled"):
        OfferedFiles(home, "disk", lambda: True).manifest(1, 0, ())


def test_a_file_that_grows_is_sent_as_it_was_and_one_that_is_gone_or_strange_is_empty(home: Path) -> None:
    offered = OfferedFiles(home, "disk")
    manifest = offered.manifest(1, 0, ())
    stream = manifest.files[-1]
    with (home / stream.name).open("ab") as file:
        file.write(b"more")
    last = stream.length - 10
    assert offered.piece(1, stream.name, last).octets == (home / stream.name).read_bytes()[last : stream.length]
    (home / stream.name).unlink()
    for name in (stream.name, "jumpmq.lock", "../home/jumpmq.db", "/etc/passwd", ""):
        assert not offered.piece(1, name, 0).octets


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "log/../../x.log", "log/0000000001.log\n", "replica", "streams"]
)
def test_a_leader_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="cannot have a file"):
        ComingFiles(tmp_path / "1").put(Put(name, 0, b"x"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_copy_made_of_files_goes_on_behind_consumed_segments(home: Path, tmp_path: Path) -> None:
    read = CopyDirectory(home, "log")
    first, *_, last = read.lineage
    read.close()
    assert last.segment > first.segment + 1
    directory = tmp_path / "1"
    old = CopyDirectory(directory, "log")
    old.note(3, 0)
    old.close()
    coming = ComingFiles(directory)
    coming.put(Put("log/0000000001.log", 0, (home / DIRECTORY / "0000000001.log").read_bytes()))
    coming.install(Install(before(last.segment), (first,)), old.noted)
    settle(directory)
    found = CopyDirectory(directory, "log")
    assert found.kept == before(last.segment) and not found.renewed
    copy = Copy("b.1", found.noted.epoch, found.noted.mark, found.lineage, found.kept)
    assert copy.end == copy.complete == before(last.segment)
    replica = Replica(copy)
    replica.on_connected("a.1")
    actions = replica.on_frame("a.1", Lead(3, before(last.segment), (last,)))
    assert actions == [Send("a.1", Matched(3, copy.end))]
    found.close()


def test_a_crash_between_two_renames_is_gone_on_with_and_nothing_else_goes(home: Path, tmp_path: Path) -> None:
    directory = tmp_path / "1"
    old = CopyDirectory(directory, "log")
    old.close()
    others = directory / "copies" / "2" / "replica"
    others.parent.mkdir(parents=True)
    others.write_bytes(b"of another home")
    (directory / "jumpmq.db-wal").write_bytes(b"of the old index")
    coming = ComingFiles(directory)
    coming.put(Put("log/0000000001.log", 0, b"damaged"))
    coming.clear(Clear(("log/0000000001.log",)))
    shutil.copytree(home / DIRECTORY, directory / "coming" / DIRECTORY, dirs_exist_ok=True)
    shutil.copy(home / "jumpmq.db", directory / "coming")
    read = CopyDirectory(home, "log")
    coming.install(Install(0, read.lineage), old.noted)
    (directory / "old").mkdir()
    (directory / DIRECTORY).rename(directory / "old" / DIRECTORY)
    settle(directory)
    found = CopyDirectory(directory, "log")
    assert found.lineage == read.lineage
    found.close()
    settle(directory)
    assert others.read_bytes() == b"of another home"
    names = ["copies", "jumpmq.db", "jumpmq.lock", DIRECTORY, "replica", "streams"]
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)


def test_a_copy_that_is_set_aside_is_empty_and_another_and_keeps_its_promise(home: Path) -> None:
    copy = CopyDirectory(home, "log")
    copy.note(7, copy.end)
    copy.close()
    others = home / "copies" / "2" / "replica"
    others.parent.mkdir(parents=True)
    others.write_bytes(b"of another home")
    set_aside(home)
    found = CopyDirectory(home, "log")
    assert (found.lineage, found.noted.epoch, found.noted.mark) == ((), 7, 0)
    assert found.noted.disk != copy.noted.disk
    found.close()
    set_aside(home)  # the segment was not filled yet
    assert others.exists() and not (home / "jumpmq.db").exists() and not (home / "streams").exists()
    assert sorted(path.name for path in (home / "damaged").iterdir()) == [
        "definitions",
        "jumpmq.db",
        "log",
        "streams",
    ]


def test_two_members_take_files_from_a_leader_at_once(home: Path) -> None:
    path = home / "streams" / "7" / "00000000000000000000.segment"
    one, two = OfferedFiles(home, "one"), OfferedFiles(home, "two")
    manifest = one.manifest(1, 0, ())
    with closing(sqlite3.connect(home / "jumpmq.db")) as index:
        index.execute("CREATE TABLE later (number)")
    path.write_bytes(WHOLE + TORN + AHEAD)
    two.manifest(1, 0, ())
    for file in manifest.files:
        octets = b"".join(one.piece(1, file.name, at).octets for at in range(0, file.length, 1 << 20))
        assert (len(octets), crc32(octets)) == (file.length, file.crc), file.name
    remove_offered(home)
    assert not [*home.glob("index-*")]


def test_a_log_is_kept_for_a_member_that_takes_files_until_that_gets_no_further(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    monkeypatch.setattr(file_exchange, "boot_time", lambda: clock)
    offer = file_exchange._FileOffer(OfferedFiles(home, "disk"))
    offer.list(begins=True)
    clock += 5000
    assert offer.holds
    offer.list(begins=False)
    assert offer.holds, "to make a manifest takes as long as it takes"
    for octets in (300, 400, 300, 300, 300):  # of each attempt; a repeated manifest begins the next attempt
        offer.on_want(Want(1, "", 0))
        for _ in range(octets // 100):
            clock += 50
            offer.on_want(Want(1, "log/0000000001.log", 0))
            offer.on_sent(100)
    assert not offer.is_stalled and offer.holds
    for _ in range(4):
        clock += 50
        offer.on_want(Want(1, "", 0))
    assert offer.is_stalled and not offer.holds
    offer.on_sent(500)
    assert offer.holds, "it goes on after all"
    clock += 90
    assert not offer.holds and not offer.is_stalled, "it does not ask any more"


def test_a_damaged_segment_is_found_before_it_is_offered(home: Path) -> None:
    lineage = CopyDirectory(home, "log").lineage
    assert not damaged_segment(home, lineage)
    path = home / DIRECTORY / file_name(lineage[0].segment)
    octets = bytearray(path.read_bytes())
    octets[lineage[0].end // 2] ^= 4
    path.write_bytes(octets)
    assert damaged_segment(home, lineage) == int(path.stem)
