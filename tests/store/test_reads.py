"""Failed reads are repeated or reported; unreadable messages are neither settled nor cut."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.opened import Opened, make_messages

from jumpmq.amqp.messages import Message
from jumpmq.queues.base import Outcome, QueueContext
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store.files import Files
from jumpmq.store.log import OPEN_FILES
from jumpmq.store.reader import RETRIES


class FailingReads(Files):
    """Files with failing reads: the opened file is a directory, which cannot be read.

    Attributes:
        failures: number of further failing files.
    """

    failures = 0

    def open(self, path: Path) -> int:
        if self.failures:
            self.failures -= 1
            return os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        return super().open(path)


def kept(directory: Path, files: FailingReads) -> Opened:
    """A started store with 100 unread messages in queue 1."""
    opened = Opened(directory, files)
    opened.store.append(1, make_messages(1, 100))
    opened.commit()
    return opened.restart()


def numbers(opened: Opened) -> list[int]:
    return [message.seq for batch in opened.store.batches().get(1, []) for message in opened.store.read(batch)]


def test_a_read_that_fails_in_passing_is_tried_again(tmp_path: Path) -> None:
    files = FailingReads()
    opened = kept(tmp_path / "store", files)
    files.failures = RETRIES
    assert numbers(opened) == [*range(1, 101)]
    assert not opened.store.losses.listed()
    opened.close()


def test_what_cannot_be_read_is_named_and_there_at_the_next_start(tmp_path: Path) -> None:
    files = FailingReads()
    opened = kept(tmp_path / "store", files)
    files.failures = 1_000_000
    assert numbers(opened) == []
    ((loss, _),) = opened.store.losses.listed()
    assert "cannot be read" in loss and "stay on disk" in loss and "queue number 1" in loss
    files.failures = 0
    assert numbers(opened.restart()) == [*range(1, 101)]
    opened.close()


@pytest.mark.parametrize("outcome", [Outcome.REQUEUED, Outcome.REJECTED])
def test_deliveries_that_come_back_and_cannot_be_read_stay_on_disk(tmp_path: Path, outcome: Outcome) -> None:
    files, count = FailingReads(), OPEN_FILES + 20
    opened = Opened(tmp_path / "store", files, segment_bytes=256)
    context = QueueContext(journal=opened.store, memory=MemoryAccount(1))
    queue = ClassicQueue("/", "q", id=1, durable=True, context=context)
    for number in range(count):
        queue.push([Message("", b"q", b"\x10\0\2", b"%d" % number * 500, True)])
        opened.commit()
    held = queue.take(count)
    queue.taken.page(held)
    files.failures = 1_000_000
    queue.settle(held[:5], outcome)  # from files that are closed meanwhile
    opened.commit()
    assert (queue.ready_count, queue.unacknowledged_count) == (0, count - 5)
    assert len(opened.store.losses.listed()) == 5
    files.failures = 0
    assert numbers(opened.restart()) == [*range(1, count + 1)]
    opened.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process has reached its limit of open files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 8, limits[1]), limits[1]))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


def test_messages_of_many_files_are_read_while_no_descriptor_is_left(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "store", segment_bytes=256)
    for first in range(1, 101, 10):
        opened.store.append(1, make_messages(first, first + 9))
        opened.commit()
    opened.restart()
    assert len(list((tmp_path / "store" / "log").glob("*.log"))) > 3
    batches = opened.store.batches()[1]
    for _ in range(2):
        with no_descriptor_left():
            found = [message.seq for batch in batches for message in opened.store.read(batch)]
        assert found == [*range(1, 101)]
    assert not opened.store.losses.listed()
    opened.close()
