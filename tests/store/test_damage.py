"""Damage loses only the damaged part and is reported; all readable messages can be copied elsewhere."""

import logging
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.store.opened import Opened, killed_now, left, make_messages

from jumpmq.store import Store, StoreError
from jumpmq.store.inspection import check, salvage


def make(directory: Path) -> Path:
    """A store with definitions, large and small messages and settlements, killed."""
    opened = Opened(directory)
    opened.store.put("queue", "orders", {"durable": True})
    for first in range(1, 101, 10):
        for queue in (1, 2, 3):
            opened.store.append(queue, make_messages(first, first + 9, body=lambda seq: b"body %d" % seq * 20))
        opened.commit()
    for batch in {message.batch for message in opened.store.read(opened.store._growing[3])}:
        batch.settle_range(11, 20)
    opened.commit()
    opened.store.put("queue", "last", {})
    opened.commit()
    copy = killed_now(directory, directory.with_name("killed"))
    opened.close()
    return copy


def log_file(directory: Path) -> Path:
    (path,) = (directory / "log").glob("*.log")
    return path


def flip(path: Path, offset: int) -> None:
    """Change one bit."""
    octets = bytearray(path.read_bytes())
    octets[offset] ^= 1 << offset % 8
    path.write_bytes(octets)


def open_new(directory: Path) -> Store:
    return Store.open(directory, on_commit=lambda receipt: None)


def test_a_changed_body_costs_the_messages_that_were_committed_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = make(tmp_path / "broker")
    assert list(check(directory)) == []
    path = log_file(directory)
    flip(path, path.read_bytes().index(b"body 35"))
    (finding,) = check(directory)
    assert f"{path} is damaged" in finding and "10 messages from number 31 on of queue number 1" in finding
    opened = Opened(directory)
    assert left(opened)[1] == [*range(1, 31), *range(41, 101)]
    assert [queue for queue in (1, 2, 3) if queue in opened.store.batches()] == []
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "messages 31 to 40 of queue number 1" in warning and str(path) in warning
    opened.store.append(1, make_messages(101, 101))
    opened.commit()
    assert left(opened.restart())[1] == [*range(1, 31), *range(41, 102)]
    opened.close()
    assert path.exists()  # damaged messages stay


def test_one_bit_anywhere_in_the_log(tmp_path: Path) -> None:
    """With any bit of the log flipped, the store opens; at most one commit of one queue is missing."""
    directory = make(tmp_path / "broker")
    path = log_file(directory)
    whole = path.read_bytes()
    expected = {1: set(range(1, 101)), 2: set(range(1, 101)), 3: {*range(1, 11), *range(21, 101)}}
    end = len(whole.rstrip(b"\0"))
    chance = random.Random(11)
    for offset in [*range(64), *(chance.randrange(end) for _ in range(150))]:
        path.write_bytes(whole)
        flip(path, offset)
        opened = Opened(directory)
        batches = opened.store.batches()
        for queue, numbers in expected.items():
            found = [one for batch in batches.get(queue, []) for one in opened.store.read(batch)]
            assert all(one.body == b"body %d" % one.seq * 20 for one in found), offset
            missing = numbers - {one.seq for one in found}
            assert len(missing) <= 10, offset
        opened.store.close()


def change_definition(directory: Path) -> None:
    connection = sqlite3.connect(directory / "jumpmq.db")
    connection.execute("UPDATE definition SET value = replace(value, 'type', 'typo')")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_a_damaged_definition_is_taken_from_the_copy_and_else_costs_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Opened(tmp_path)
    opened.store.put("queue", "kept", 1)
    opened.store.put("queue", "hurt", {"x-queue-type": "classic"})
    opened.close()
    change_definition(tmp_path)
    opened = Opened(tmp_path)
    assert opened.store.whole
    assert opened.store.definitions() == [("queue", "kept", 1), ("queue", "hurt", {"x-queue-type": "classic"})]
    opened.close()
    change_definition(tmp_path)
    (tmp_path / "definitions").unlink()
    opened = Opened(tmp_path)
    assert not opened.store.whole
    assert opened.store.definitions() == [("queue", "kept", 1)]
    assert any("definition of queue 'hurt'" in record.getMessage() for record in caplog.records)
    opened.close()


def lived(directory: Path, *, clean: bool) -> Path:
    """Make a store of several segments, some gone and some moved, with an index behind its log."""
    opened = Opened(directory, segment_bytes=16 << 10)
    for queue in range(1, 9):
        opened.store.put("queue", f"orders {queue}", {"durable": True})
    opened.store.put("queue", "temporary", {"durable": True})
    opened.commit()
    opened.store.delete("queue", "temporary")
    for first in range(1, 801, 10):
        messages = make_messages(first, first + 9, body=lambda seq: b"body %d" % seq * 10)
        opened.store.append(1 + first % 8, messages)
        opened.commit()
        for message in messages[:9] if first % 20 == 1 else messages:  # one message of every second ten stays
            message.batch.settle(message.seq)
        opened.commit()
        opened.store.completed()
    if clean:
        opened.close()
        return directory
    opened.commit()
    copy = killed_now(directory, directory.with_name("killed"))
    opened.close()
    return copy


STAY = set(range(10, 801, 20))


def served(directory: Path) -> tuple[list[str], dict[int, bytes]]:
    """Return the queues and messages of an opened store, by number; no message comes twice."""
    opened = Opened(directory)
    try:
        queues = [key for _, key, _ in opened.store.definitions()]
        found = [
            one for batches in opened.store.batches().values() for batch in batches for one in opened.store.read(batch)
        ]
        assert len({one.seq for one in found}) == len(found)
        return queues, {one.seq: one.body for one in found}
    finally:
        opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_a_bit_in_any_file(tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """With a bit flipped in any file, the store opens with all undamaged content, and reports the file of a loss."""
    directory = lived(tmp_path / "broker", clean=clean)
    queues, whole = served(shutil.copytree(directory, tmp_path / "whole"))
    assert queues == [f"orders {queue}" for queue in range(1, 9)]
    assert set(whole) == STAY
    names = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
    assert {"jumpmq.db", "definitions"} < set(map(str, names)) and any(one.suffix == ".log" for one in names)
    chance = random.Random(clean)
    for number in range(120):
        copy = shutil.copytree(directory, tmp_path / f"copy {number}")
        name = names[number % len(names)]
        size = len((copy / name).read_bytes().rstrip(b"\0"))
        flip(copy / name, chance.randrange(min(size, 100)) if chance.random() < 0.3 else chance.randrange(size))
        caplog.clear()
        queues, found = served(copy)
        assert queues == [f"orders {queue}" for queue in range(1, 9)], name
        assert all(body == b"body %d" % seq * 10 for seq, body in found.items()), name
        missing = STAY - set(found)
        assert len(missing) <= (10 if name.suffix == ".log" else 0), name
        if missing:
            assert any(str(copy / name) in record.getMessage() for record in caplog.records), name
        shutil.rmtree(copy)


@pytest.mark.parametrize("octets", [b"", b"gone", b"garbage!" * 1000])
def test_an_index_that_is_none_is_set_aside(tmp_path: Path, octets: bytes, caplog: pytest.LogCaptureFixture) -> None:
    directory = lived(tmp_path / "broker", clean=False)
    for number in (1, 2):
        (directory / "jumpmq.db").write_bytes(octets)
        queues, found = served(directory)
        assert queues == [f"orders {queue}" for queue in range(1, 9)]
        assert set(found) >= STAY
        name = "jumpmq.db.damaged" if number == 1 else "jumpmq.db.damaged-2"
        assert (directory / name).read_bytes() == octets
        assert str(directory / name) in caplog.text
    caplog.clear()
    served(directory)
    assert not caplog.records


def test_an_index_that_lost_its_own_log_is_behind(tmp_path: Path) -> None:
    """An index without its SQLite log is older than the copy of the definitions, which then counts."""
    directory = lived(tmp_path / "broker", clean=False)
    assert (directory / "jumpmq.db-wal").stat().st_size
    (directory / "jumpmq.db-wal").unlink()
    queues, found = served(directory)
    assert queues == [f"orders {queue}" for queue in range(1, 9)]
    assert set(found) >= STAY


def test_salvage_takes_what_can_be_read(tmp_path: Path) -> None:
    directory = make(tmp_path / "broker")
    path = log_file(directory)
    flip(path, path.read_bytes().index(b"body 35"))
    (directory / "jumpmq.db").write_bytes(b"gone")
    (directory / "jumpmq.db-wal").unlink(missing_ok=True)
    said = list(salvage(directory, tmp_path / "saved", open_new))
    assert "is damaged" in said[0]
    assert said[-1].startswith("2 definitions and 280 messages of 3 queues are in")
    opened = Opened(tmp_path / "saved")
    assert not opened.store.clean
    assert opened.store.definitions() == [("queue", "orders", {"durable": True}), ("queue", "last", {})]
    assert left(opened) == {
        1: [*range(1, 31), *range(41, 101)],
        2: list(range(1, 101)),
        3: [*range(1, 11), *range(21, 101)],
    }
    opened.close()


def test_salvage_needs_an_empty_place_and_a_data_directory(tmp_path: Path) -> None:
    directory = make(tmp_path / "broker")
    with pytest.raises(StoreError, match="is not empty"):
        list(salvage(directory, directory, open_new))
    with pytest.raises(StoreError, match="is no data directory"):
        list(check(tmp_path))


def test_only_this_user_may_read_the_files(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker")
    opened.store.append(1, make_messages(1, 1))
    opened.commit()
    assert (tmp_path / "broker").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "broker").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    opened.close()
