"""A store opened as a broker opens it, and test messages."""

import os
import queue
import select
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.store.lagging import Lagging

from jumpmq.amqp.messages import Message
from jumpmq.store import Batch, Store, StoreError
from jumpmq.store.completion import Completion
from jumpmq.store.files import Files
from jumpmq.store.log import SEGMENT_BYTES
from jumpmq.store.staging import COMMIT_BYTES
from jumpmq.store.writer import ShipAhead

RETRY_INTERVAL = 0.01
"""Seconds between attempts of a failing commit in tests."""

PROPERTIES = b"\x90\x00\x10application/json\x02"


def usual() -> Completion:
    """Return the completion of a store without copies; a lagging completion if the suite runs with LAGGING=1."""
    return Lagging(Random(1)) if os.environ.get("LAGGING") else Completion()


class Opened:
    """A store with recorded reports, and methods to wait for the store."""

    def __init__(
        self,
        directory: Path,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        commit_bytes: int = COMMIT_BYTES,
        completion: Callable[[], Completion] | None = None,
        epoch: int = 0,
        tell: int = -1,
        ship: ShipAhead | None = None,
    ) -> None:
        self.directory = directory
        self.files = files
        self.segment_bytes, self.commit_bytes, self._completion = segment_bytes, commit_bytes, completion or usual
        self.epoch, self._told, self._ship = epoch, tell, ship
        self.tell: Callable[[int], object] = lambda number: None
        self.commits: list[int] = []
        self.errors: queue.SimpleQueue[StoreError] = queue.SimpleQueue()
        self._copies: list[Opened] = []
        self.store = self._open()

    def commit(self) -> int:
        """Flush, and wait until everything is on disk."""
        return self.wait_for(self.store.flush())

    def wait_for(self, number: int) -> int:
        self.work_until(lambda: self.store.committed >= number)
        return number

    def work_until(self, condition: Callable[[], bool]) -> None:
        """Run the store until a condition holds."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            select.select([self.store.fileno()], [], [], 1)
            self.store.completed()

    def error(self) -> StoreError:
        """Wait for a commit to fail."""
        self.work_until(lambda: not self.errors.empty())
        return self.errors.get()

    def crash(self) -> "Opened":
        """Return the store as a new broker would find the directory after a kill at this moment."""
        name = f"{self.directory.name}-{len(self._copies)}"
        self._copies.append(Opened(killed_now(self.directory, self.directory.with_name(name))))
        return self._copies[-1]

    def restart(self) -> "Opened":
        """Stop cleanly and open again."""
        self.store.close()
        self.store = self._open()
        return self

    def close(self) -> None:
        for opened in (*self._copies, self):
            opened.store.close()

    def _open(self) -> Store:
        return Store.open(
            self.directory,
            on_commit=self._on_commit,
            on_error=self.errors.put,
            files=self.files,
            segment_bytes=self.segment_bytes,
            commit_bytes=self.commit_bytes,
            completion=self._completion(),
            retry_interval=RETRY_INTERVAL,
            epoch=self.epoch,
            tell=self._told,
            ship=self._ship,
        )

    def _on_commit(self, number: int) -> None:
        self.commits.append(number)
        self.tell(number)


def killed_now(directory: Path, to: Path) -> Path:
    """Copy a store as the kernel would leave the files after a kill of the process."""
    (to / "log").mkdir(parents=True)
    for path in directory.glob("log/*.log"):  # before the index: the index covers segments removed meanwhile
        with suppress(FileNotFoundError):
            shutil.copyfile(path, to / "log" / path.name)
    for name in ("jumpmq.db", "jumpmq.db-wal", "definitions", "losses"):
        if (directory / name).exists():
            shutil.copyfile(directory / name, to / name)
    return to


def make_messages(first: int, last: int, body: Callable[[int], bytes] = b"body %d".__mod__) -> list[Message]:
    """Messages numbered ``first`` to ``last`` of a queue."""
    messages = []
    for seq in range(first, last + 1):
        message = Message("flights", b"N%d" % seq, PROPERTIES, body(seq), True, 1_700_000_000.25 + seq)
        message.seq = seq
        messages.append(message)
    return messages


def content(message: Message) -> tuple[object, ...]:
    """Return all fields of a message that must survive."""
    return (
        message.seq,
        message.exchange,
        message.routing_key,
        message.properties,
        message.body,
        message.persistent,
        message.published_at,
    )


def seqs(store: Store, batches: list[Batch]) -> list[int]:
    """Numbers of the messages left in some batches."""
    return [message.seq for batch in batches for message in store.read(batch)]


def left(opened: Opened) -> dict[int, list[int]]:
    """Return the content of a freshly opened store: the messages' numbers by queue."""
    return {queue_id: seqs(opened.store, batches) for queue_id, batches in opened.store.batches().items()}
