"""A store that cannot be used is refused with one line that says what to do, and left as it is."""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.opened import Opened, killed_now, make_messages

from jumpmq.store import Store, StoreError


def refusal(directory: Path) -> str:
    """Why the store in a directory is refused."""
    with pytest.raises(StoreError) as raised:
        Store.open(directory, on_commit=lambda number: None)
    message = str(raised.value)
    assert "\n" not in message
    return message


def octets(directory: Path) -> dict[str, bytes]:
    """All that matters of a directory: the lock names whoever tried last, and SQLite rebuilds its shared index."""
    return {
        file.name: file.read_bytes()
        for file in directory.iterdir()
        if file.name != "jumpmq.lock" and not file.name.endswith("-shm")
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with definitions, messages and a settlement, cleanly stopped."""
    opened = Opened(tmp_path / "broker")
    for i in range(50):
        opened.store.put("queue", f"orders {i}", {"durable": True, "arguments": {"x-queue-type": "classic"}})
        opened.store.append(i, make_messages(1, 200))
    messages = make_messages(1, 3)
    opened.store.append(99, messages)
    opened.commit()
    messages[0].batch.settle(1)
    opened.close()
    return opened.directory


@pytest.fixture
def killed(directory: Path, tmp_path: Path) -> Path:
    """The same, but killed after a further commit, which is in the log only."""
    opened = Opened(directory)
    opened.store.put("queue", "one more", 1)
    opened.commit()
    copy = killed_now(directory, tmp_path / "killed")
    opened.close()
    return copy


def overwrite(directory: Path, offset: int, replacement: bytes) -> None:
    with (directory / "jumpmq.db").open("r+b") as file:
        file.seek(offset)
        file.write(replacement)


def without_header(directory: Path) -> None:
    overwrite(directory, 0, b"garbage!" * 16)


def emptied(directory: Path) -> None:
    (directory / "jumpmq.db").write_bytes(b"")


def cut_short(directory: Path) -> None:
    os.truncate(directory / "jumpmq.db", (directory / "jumpmq.db").stat().st_size // 2)


def cut_within_the_header(directory: Path) -> None:
    os.truncate(directory / "jumpmq.db", 60)


def definition_changed(directory: Path) -> None:
    file = (directory / "jumpmq.db").read_bytes()
    overwrite(directory, file.index(b"x-queue-type"), b"x-queue-typo")


def settlement_changed(directory: Path) -> None:
    connection = sqlite3.connect(directory / "jumpmq.db")
    connection.execute("UPDATE settlement SET seqs = x'0300000000000000'")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint")
    connection.close()


def table_missing(directory: Path) -> None:
    connection = sqlite3.connect(directory / "jumpmq.db")
    connection.execute("DROP TABLE settlement")
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        without_header,
        emptied,
        cut_short,
        cut_within_the_header,
        definition_changed,
        settlement_changed,
        table_missing,
    ],
)
def test_a_damaged_store(directory: Path, damage: Callable[[Path], None]) -> None:
    damage(directory)
    before = octets(directory)
    message = refusal(directory)
    assert f"{directory / 'jumpmq.db'} is damaged" in message
    assert "restore it from a backup" in message
    assert octets(directory) == before


@pytest.mark.parametrize("damage", [without_header, emptied, cut_within_the_header])
def test_a_damaged_store_keeps_its_log(killed: Path, damage: Callable[[Path], None]) -> None:
    damage(killed)
    before = octets(killed)
    assert before["jumpmq.db-wal"]
    assert "is damaged" in refusal(killed)
    assert octets(killed) == before


def test_a_log_cannot_hide_that_the_store_is_of_a_newer_version(killed: Path) -> None:
    overwrite(killed, 60, (2).to_bytes(4))
    before = octets(killed)
    assert "newer version of JumpMQ" in refusal(killed)
    assert octets(killed) == before


@pytest.mark.parametrize("state", ["directory", "killed"])
def test_damage_anywhere_is_refused_or_found_when_the_messages_are_read(
    request: pytest.FixtureRequest, state: str
) -> None:
    """Whatever octets change: no other error than StoreError, and no message that is not as it was published."""
    directory: Path = request.getfixturevalue(state)
    whole = octets(directory)
    chance = random.Random(7)
    for _ in range(40):
        for name, content in whole.items():
            (directory / name).write_bytes(content)
        offset = chance.randrange(len(whole["jumpmq.db"]))
        overwrite(directory, offset, chance.randbytes(chance.choice([1, 8, 9000])))
        try:
            store = Store.open(directory, on_commit=lambda number: None)
        except StoreError:
            continue
        for batches in store.batches().values():
            for batch in batches:
                try:
                    messages = store.read(batch)
                except StoreError as error:
                    assert "is damaged" in str(error) or "no longer" in str(error)
                else:
                    assert all(message.body == b"body %d" % message.seq for message in messages)
        with contextlib.suppress(StoreError):
            store.close()


def test_damaged_messages_are_found_when_they_are_read(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker")
    for first in (1, 101):
        opened.store.append(1, make_messages(first, first + 99))
        opened.commit()
    opened.close()
    file = (opened.directory / "jumpmq.db").read_bytes()
    overwrite(opened.directory, file.index(b"body 150"), b"BODY 150")
    store = Store.open(opened.directory, on_commit=lambda number: None)
    good, bad = store.batches()[1]
    assert len(store.read(good)) == 100
    for read in (store.read, store.arrow):
        with pytest.raises(StoreError, match="messages 101 to 200 of queue number 1"):
            read(bad)
    store.close()


def test_a_store_of_a_newer_version(directory: Path) -> None:
    overwrite(directory, 60, (2).to_bytes(4))
    before = octets(directory)
    message = refusal(directory)
    assert "newer version of JumpMQ" in message
    assert "install that version" in message
    assert octets(directory) == before


def test_another_programs_database(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jumpmq.db")
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = octets(tmp_path)
    assert "is not a JumpMQ store" in refusal(tmp_path)
    assert octets(tmp_path) == before


def test_a_log_whose_store_is_missing(directory: Path) -> None:
    """It would be replayed into the new, empty store."""
    (directory / "jumpmq.db").rename(directory / "elsewhere")
    (directory / "jumpmq.db-wal").touch()
    before = octets(directory)
    assert "is missing, but its log jumpmq.db-wal is there" in refusal(directory)
    assert octets(directory) == before


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert f"cannot use {tmp_path / 'file'} as the data directory: File exists" in refusal(tmp_path / "file")
    assert "Not a directory" in refusal(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that not even root can write to: /proc")
def test_a_directory_that_cannot_be_written_to() -> None:
    assert "choose a directory that this user may write to" in refusal(Path("/proc/jumpmq"))


def test_a_directory_in_use_by_another_broker(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, jumpmq.store as s\n"
        "store = s.Store.open(pathlib.Path(sys.argv[1]), on_commit=lambda number: None)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        before = octets(tmp_path)
        assert f"in use by another broker (process {holder.pid})" in refusal(tmp_path)
        assert octets(tmp_path) == before
        holder.kill()
    Opened(tmp_path).close()


def test_a_crash_while_the_store_is_made_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "jumpmq.db.new").write_bytes(b"SQLite format 3\0 and then the power failed")
    Opened(tmp_path).close()
    assert not (tmp_path / "jumpmq.db.new").exists()
