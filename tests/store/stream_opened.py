"""Streams opened as a broker opens them, including number 7, and test messages."""

import queue
import select
import time
from collections.abc import Callable
from pathlib import Path

from tests.store.opened import RETRY_INTERVAL

from jumpmq.amqp.messages import Message
from jumpmq.store import Store, StoreError
from jumpmq.store.completion import Completion
from jumpmq.store.files import Files
from jumpmq.store.log import SEGMENT_BYTES
from jumpmq.store.stream_files import StreamFiles
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import StreamSegment

START = 1_700_000_000


def message(number: int, size: int = 10) -> Message:
    return Message("e", b"k%d" % number, b"\x10\x00\x02", b"%0*d" % (size, number), True, START + number)


class Opened:
    """A store in a directory, its streams, and stream 7.

    Attributes:
        retired: segments released by retention and not yet deleted.
    """

    def __init__(
        self,
        directory: Path,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        completion: Completion | None = None,
    ) -> None:
        self.directory = directory
        self.errors: queue.SimpleQueue[StoreError] = queue.SimpleQueue()
        self.tell: Callable[[], None] = lambda: None
        self.retired: list[StreamSegment] = []
        self._is_closed = False
        self.store = Store.open(
            directory,
            on_commit=lambda receipt: self.tell(),
            on_error=self.errors.put,
            files=files,
            segment_bytes=segment_bytes,
            completion=completion,
            retry_interval=RETRY_INTERVAL,
        )
        self.files = StreamFiles(
            directory / "streams",
            store=self.store,
            files=files,
            known=self.store.streams,
            on_loss=self.store.losses.add,
            on_retire=self.retired.append,
        )
        self.log = self.files.open(7, "queue 'events'")

    def append(self, *messages: Message) -> None:
        """Commit messages, and make them visible."""
        self.files.append(self.log, list(messages))
        self.commit()

    def commit(self) -> None:
        """Commit everything staged."""
        receipt = self.store.flush()
        self.work_until(lambda: self.store.committed >= receipt)

    def work_until(self, condition: Callable[[], bool]) -> None:
        """Run the store until a condition holds."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            select.select([self.store.fileno()], [], [], 1)
            self.store.completed()

    def remove(self, number: int) -> None:
        """Delete a stream, as the broker does."""
        self.files.remove(number)
        removed = self.files.take_removed()
        self.commit()
        self.files.delete(removed)

    @property
    def losses(self) -> list[str]:
        """Return the losses found."""
        return [loss for loss, _ in self.store.losses.listed()]

    def close(self, *, clean: bool = True) -> None:
        """Close the streams and the store, if still open."""
        if self._is_closed:
            return
        self._is_closed = True
        self.files.fall_silent()
        self.store.close(clean=clean)
        self.files.close()


def segment_files(directory: Path) -> list[Path]:
    """The files of stream 7 in a data directory."""
    return sorted((directory / "streams" / "7").glob("*.segment"))


def bodies(log: StreamLog, first: int = 0, last: int = 1 << 60) -> list[int]:
    """Return the bodies read; the body of each message is its offset."""
    found = []
    for batch in log.read(first, last):
        found += [int(body) for body in batch.column("body").to_pylist()]
        assert batch.column("seq").to_pylist() == found[-batch.num_rows :]
    return found
