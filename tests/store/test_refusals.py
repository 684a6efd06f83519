"""An unusable store is refused with one line that says how to proceed, and left unchanged."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.opened import Opened, make_messages

from jumpmq.store import Store, StoreError, schema


def refusal(directory: Path) -> str:
    """Return the text of the refusal of a store in a directory."""
    with pytest.raises(StoreError) as raised:
        Store.open(directory, on_commit=lambda number: None)
    message = str(raised.value)
    assert "\n" not in message
    return message


def octets(directory: Path) -> dict[str, bytes]:
    """Return a directory's content, without the lock and SQLite's shared index, which every attempt changes."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and file.name != "jumpmq.lock" and not file.name.endswith("-shm")
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


def overwrite(directory: Path, offset: int, replacement: bytes) -> None:
    with (directory / "jumpmq.db").open("r+b") as file:
        file.seek(offset)
        file.write(replacement)


def test_a_store_of_a_newer_version(directory: Path) -> None:
    overwrite(directory, 60, (schema.VERSION + 1).to_bytes(4))
    for path in directory.glob("log/*.log"):
        path.write_bytes(b"of a newer version, too")
    before = octets(directory)
    message = refusal(directory)
    assert "newer version of JumpMQ" in message
    assert "install the newer version" in message
    assert octets(directory) == before


def test_another_programs_database(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jumpmq.db")
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = octets(tmp_path)
    assert "is not a JumpMQ store" in refusal(tmp_path)
    assert octets(tmp_path) == before


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
