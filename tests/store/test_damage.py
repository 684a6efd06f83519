"""Damage costs what is damaged and nothing else, and it is named; what can be read can be taken elsewhere."""

import logging
import random
import re
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
    assert "queue number 1" in warning and str(path) in warning
    opened.store.append(1, make_messages(101, 101))
    opened.commit()
    assert left(opened.restart())[1] == [*range(1, 31), *range(41, 102)]
    opened.close()
    assert path.exists()  # what is damaged stays


def test_one_bit_anywhere_in_the_log(tmp_path: Path) -> None:
    """The store opens, and what it serves is as it was published; at most one commit of one queue is missing."""
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


def test_a_damaged_definition_costs_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = Opened(tmp_path)
    opened.store.put("queue", "kept", 1)
    opened.store.put("queue", "hurt", {"x-queue-type": "classic"})
    opened.close()
    connection = sqlite3.connect(tmp_path / "jumpmq.db")
    connection.execute("UPDATE definition SET value = replace(value, 'type', 'typo')")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    opened = Opened(tmp_path)
    assert opened.store.definitions() == [("queue", "kept", 1)]
    assert any("definition of queue 'hurt'" in record.getMessage() for record in caplog.records)
    opened.close()


def test_damage_anywhere_in_the_index_is_refused_or_named(tmp_path: Path) -> None:
    """Whatever octets change: no other error than StoreError, and no message that is not as it was published."""
    opened = Opened(tmp_path / "broker")
    for queue in range(50):
        opened.store.put("queue", f"orders {queue}", {"durable": True})
        opened.store.append(queue, make_messages(1, 200))
    opened.commit()
    opened.close()
    path = tmp_path / "broker" / "jumpmq.db"
    whole = path.read_bytes()
    chance = random.Random(7)
    for _ in range(40):
        path.write_bytes(whole)
        with path.open("r+b") as file:
            file.seek(chance.randrange(len(whole)))
            file.write(chance.randbytes(chance.choice([1, 8, 5000])))
        try:
            store = open_new(tmp_path / "broker")
        except StoreError as error:
            assert re.search("is damaged|is not a JumpMQ store|newer version|cannot read", str(error))
            continue
        for batches in store.batches().values():
            for batch in batches:
                assert all(message.body == b"body %d" % message.seq for message in store.read(batch))
        store._upkeep._index._connection.close()
        store._lock.release()


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
