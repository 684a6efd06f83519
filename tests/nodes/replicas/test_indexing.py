"""Indexing of a copy by a process, which may be killed; the next opener of the copy waits for the end."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.opened import Opened, left, make_messages
from tests.waiting import until

from jumpmq.nodes.replicas.copy_directory import CopyDirectory
from jumpmq.nodes.replicas.indexing import Indexing
from jumpmq.store.errors import DirectoryInUse, StoreError
from jumpmq.store.indexing import Indexed, UnfitCopy
from jumpmq.store.log import DIRECTORY, file_name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the log of 240 messages, of which the last 60 are left."""
    directory = tmp_path_factory.mktemp("home")
    opened = Opened(directory, segment_bytes=1 << 14)
    opened.store.keep_from(1)
    messages = make_messages(1, 240, lambda seq: b"%d" % seq * 100)
    for first in range(0, 240, 10):
        opened.store.append(1, messages[first : first + 10])
        opened.commit()
    for message in messages[:180]:
        message.batch.settle(message.seq)
    for number in range(20):
        opened.store.put("filler", "1", str(number) * 2000)
        opened.commit()
    opened.close()
    return directory


class Copy:
    """A copy of the home, and the reports of the indexing."""

    def __init__(self, home: Path, directory: Path) -> None:
        shutil.copytree(home / DIRECTORY, directory / DIRECTORY)
        self.path = directory
        self.directory = CopyDirectory(directory, "log")
        self.last = self.directory.lineage[-1].segment
        self.said: asyncio.Queue[Indexed | Exception] = asyncio.Queue()
        soon = asyncio.get_running_loop().call_soon_threadsafe
        say = self.said.put_nowait
        self.indexing = Indexing(
            directory, soon, say, lambda text: say(UnfitCopy(text)), lambda text: say(StoreError(text)), 0.2
        )

    def run(self) -> None:
        assert self.directory.lock is not None
        self.indexing.run(self.last, self.directory.lock.fileno())

    def stop(self) -> int:
        """Begin a run, and stop its process; return the process id."""
        self.run()
        until(lambda: self.indexing._process is not None)
        process = self.indexing._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        return process.pid

    def close(self) -> None:
        self.indexing.stop()
        self.indexing.close()
        self.directory.close()


def test_a_process_makes_the_index_and_names_what_is_consumed(home: Path, tmp_path: Path) -> None:
    async def act() -> None:
        copy = Copy(home, tmp_path / "copy")
        copy.run()
        copy.run()
        indexed = await copy.said.get()
        assert isinstance(indexed, Indexed) and indexed.segment == copy.last and 1 in indexed.consumed
        copy.run()
        copy.directory.note(1, copy.directory.end)
        copy.directory.remove(indexed.consumed)
        copy.close()
        assert copy.said.empty(), "there was nothing more to do"
        opened = Opened(copy.path)
        assert left(opened) == {1: list(range(181, 241))}
        opened.close()

    asyncio.run(act())


def test_damage_is_told_and_a_run_that_failed_is_tried_again(home: Path, tmp_path: Path) -> None:
    async def act() -> None:
        copy = Copy(home, tmp_path / "copy")
        path = copy.path / DIRECTORY / file_name(2)
        octets = bytearray(path.read_bytes())
        octets[3000] ^= 1
        path.write_bytes(octets)
        copy.run()
        said = await copy.said.get()
        assert isinstance(said, UnfitCopy) and str(said).startswith(f"{path} is damaged")
        octets[3000] ^= 1
        path.write_bytes(octets)
        while not copy.indexing.is_due:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        copy.run()
        assert isinstance(await copy.said.get(), Indexed) and not copy.indexing.is_due
        copy.close()

    asyncio.run(act())


def test_a_run_is_killed_before_the_copy_is_handed_over(home: Path, tmp_path: Path) -> None:
    async def act() -> None:
        copy = Copy(home, tmp_path / "copy")
        copy.stop()
        ended = asyncio.Event()
        copy.indexing.end(ended.set)
        assert not ended.is_set()
        await ended.wait()
        copy.directory.release()
        opened = Opened(copy.path)
        assert left(opened) == {1: list(range(181, 241))}
        opened.close()
        copy.close()
        assert copy.said.empty()

    asyncio.run(act())


def test_no_other_process_opens_a_copy_that_is_being_indexed(home: Path, tmp_path: Path) -> None:
    async def act() -> None:
        copy = Copy(home, tmp_path / "copy")
        number = copy.stop()
        copy.directory.close()
        with pytest.raises(DirectoryInUse):
            CopyDirectory(copy.path, "log")
        os.kill(number, signal.SIGCONT)
        indexed = await copy.said.get()
        assert isinstance(indexed, Indexed) and indexed.consumed
        CopyDirectory(copy.path, "log").close()
        copy.close()

    asyncio.run(act())


def test_a_process_whose_starter_is_gone_says_nothing(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / DIRECTORY, tmp_path / "copy" / DIRECTORY)
    command = [sys.executable, "-m", "jumpmq.nodes.replicas.indexing", str(tmp_path / "copy"), "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
