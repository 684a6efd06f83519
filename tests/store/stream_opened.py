"""Streams opened as a broker opens them, with one numbered 7, and messages to put into it."""

import select
import time
from collections.abc import Callable
from pathlib import Path

from jumpmq.amqp.messages import Message
from jumpmq.store import StoreError
from jumpmq.store.files import Files
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog

START = 1_700_000_000


def message(number: int, size: int = 10) -> Message:
    return Message("e", b"k%d" % number, b"\x10\x00\x02", b"%0*d" % (size, number), True, START + number)


class Opened:
    """Streams in a directory, and the one numbered 7."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.errors: list[StoreError] = []
        self.tell: Callable[[], object] = lambda: None
        self.files = StreamFiles(directory, on_commit=lambda: self.tell(), on_error=self.errors.append, files=files)
        self.log = self.files.open(7)

    def append(self, *messages: Message) -> None:
        """Commit messages, and see them."""
        self.files.append(self.log, list(messages))
        number = self.files.flush()
        self.work_until(lambda: self.files.committed >= number)

    def work_until(self, condition: Callable[[], bool]) -> None:
        """Let the streams work until something is so."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline and self.files.fileno is not None
            select.select([self.files.fileno], [], [], 1)
            self.files.completed()


def bodies(log: StreamLog, first: int = 0, last: int = 1 << 60) -> list[int]:
    """What is read, where the body of each message is its offset."""
    found = []
    for batch in log.read(first, last):
        found += [int(body) for body in batch.column("body").to_pylist()]
        assert batch.column("seq").to_pylist() == found[-batch.num_rows :]
    return found
