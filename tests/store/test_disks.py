"""On full, failing or slow disks, confirmed messages are safe, nothing is lost, and the store recovers."""

import errno
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.disks import Disk
from tests.store.opened import Opened, left, make_messages

from jumpmq.amqp.messages import Message

MEGABYTE: Callable[[int], bytes] = lambda seq: bytes(1 << 20)  # noqa: E731


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def opened(tmp_path: Path, disk: Disk) -> Iterator[Opened]:
    opened = Opened(tmp_path / "broker", disk)
    opened.store.put("queue", "q", 1)
    opened.commit()
    yield opened
    disk.__init__()  # type: ignore[misc]
    opened.close()


def test_a_full_disk_confirms_nothing_and_loses_nothing(opened: Opened, disk: Disk) -> None:
    opened.store.append(1, make_messages(1, 10))
    opened.commit()
    disk.room = 0
    opened.store.append(1, make_messages(11, 20, body=MEGABYTE))
    number = opened.store.flush()
    error = opened.error()
    assert "cannot write to" in str(error) and "\n" not in str(error)
    assert opened.store.error is not None
    assert opened.store.committed == number - 1
    assert 10 << 20 < opened.store.staged_bytes < 11 << 20
    opened.store.append(1, make_messages(21, 30))
    later = opened.store.flush()
    assert left(opened.crash()) == {1: list(range(1, 11))}
    disk.room = None
    opened.wait_for(later)
    assert opened.store.error is None
    assert left(opened.crash()) == {1: list(range(1, 31))}


def test_what_says_that_messages_are_there_waits_for_them_on_a_full_disk(opened: Opened, disk: Disk) -> None:
    """On a full disk, a writer's progress waits for the messages; otherwise the next attempt would skip messages."""
    opened.store.append(1, make_messages(1, 2))
    opened.commit()
    disk.room = 0
    opened.store.append(1, make_messages(3, 12, body=MEGABYTE))
    opened.store.put("writer", "sink", 7)
    opened.store.flush()
    opened.error()
    opened.store.put("queue", "other", 1)
    last = opened.store.flush()
    opened.error()  # of the next attempt, which first writes records that need no room
    crashed = opened.crash()
    definitions = crashed.store.definitions()
    assert left(crashed) == {1: [1, 2]}
    assert ("queue", "other", 1) in definitions
    assert ("writer", "sink", 7) not in definitions
    disk.room = None
    opened.wait_for(last)
    crashed = opened.crash()
    assert ("writer", "sink", 7) in crashed.store.definitions()
    assert left(crashed) == {1: list(range(1, 13))}


def test_what_consumers_take_meanwhile_need_not_fit_on_a_full_disk(opened: Opened, disk: Disk) -> None:
    messages = make_messages(1, 10, body=MEGABYTE)
    disk.room = 0
    opened.store.append(1, messages)
    number = opened.store.flush()
    opened.error()
    for message in messages:
        message.batch.settle(message.seq)
    opened.store.flush()
    disk.room = 8 << 20
    opened.wait_for(number)
    assert opened.store.error is None


def test_draining_a_full_disk_makes_room_and_ends_the_errors(opened: Opened, disk: Disk) -> None:
    """Consumers alone empty a full disk and end the errors, though publishers want more room."""
    backlog = []
    for first in range(1, 141, 10):
        messages = make_messages(first, first + 9, body=MEGABYTE)
        opened.store.append(1, messages)
        opened.commit()
        backlog += messages
    disk.room = 0
    waiting = make_messages(1, 30, body=MEGABYTE)
    opened.store.append(2, waiting)
    number = opened.store.flush()
    opened.error()
    for message in backlog:
        message.batch.settle(message.seq)
    opened.store.flush()
    opened.wait_for(number)
    assert opened.store.error is None
    assert left(opened.crash()) == {2: list(range(1, 31))}


def test_what_makes_room_does_not_hold_up_what_waits_for_it(opened: Opened, disk: Disk) -> None:
    """Settlements during a full disk do not delay waiting commits once the disk has room."""
    messages = make_messages(1, 200)
    opened.store.append(1, messages)
    opened.commit()
    disk.room = 0
    opened.store.append(2, make_messages(1, 20, body=MEGABYTE))
    number = opened.store.flush()
    opened.error()
    disk.room = None
    stored = iter(messages)

    def settle_one_more() -> bool:
        message = next(stored)
        message.batch.settle(message.seq)
        opened.store.flush()
        return opened.store.committed >= number

    until = time.monotonic() + 10
    while not settle_one_more():
        select.select([opened.store.fileno()], [], [], 0.1)
        opened.store.completed()
        assert time.monotonic() < until
    assert opened.store.error is None


def test_who_waits_for_what_went_ahead_to_make_room_is_told(opened: Opened, disk: Disk) -> None:
    """A commit written early on a full disk, to make room, is reported though nothing else is left to write."""
    disk.write_error = errno.ENOSPC
    opened.store.put("queue", "other", 1)
    number = opened.store.flush()
    opened.error()
    disk.write_error = 0
    opened.wait_for(number)
    assert opened.store.error is None
    assert ("queue", "other", 1) in opened.crash().store.definitions()


def test_room_is_kept_again_once_there_is_enough(opened: Opened, disk: Disk, tmp_path: Path) -> None:
    reserve = tmp_path / "broker" / "log" / "reserve"
    assert reserve.exists()
    disk.room = 0
    opened.store.append(1, make_messages(1, 20, body=MEGABYTE))
    number = opened.store.flush()
    opened.error()
    assert not reserve.exists()
    disk.room = 21 << 20  # too little for a reserve
    opened.wait_for(number)
    assert not reserve.exists()
    disk.room = None
    for _ in range(2):
        opened.store.append(1, make_messages(21, 21))
        opened.commit()
        time.sleep(0.1)
    assert reserve.exists()


def backlog_on_a_full_disk(opened: Opened, disk: Disk) -> list[Message]:
    """Four messages of queue 1 are stored; twenty of queue 2 are staged and do not fit on the disk."""
    messages = make_messages(1, 4)
    opened.store.append(1, messages)
    opened.commit()
    disk.room = 0
    opened.store.append(2, make_messages(1, 20, body=MEGABYTE))
    return messages


def test_room_is_not_made_with_what_depends_on_messages_that_do_not_fit(opened: Opened, disk: Disk) -> None:
    """A message dead-lettered on a full disk stays until the dead-lettered copy is on disk."""
    messages = backlog_on_a_full_disk(opened, disk)
    opened.store.flush()
    opened.error()
    opened.store.append(3, make_messages(1, 1))
    messages[0].batch.settle(1)
    number = opened.store.flush()
    messages[0].batch.settle(2)
    opened.store.flush()
    opened.error()
    opened.error()
    assert left(opened.crash()) == {1: [1, 3, 4]}
    disk.room = None
    opened.wait_for(number)
    assert left(opened.crash()) == {1: [3, 4], 2: list(range(1, 21)), 3: [1]}


def test_what_is_settled_does_not_depend_on_what_turns_beside_it_append(opened: Opened, disk: Disk) -> None:
    """Turns that end together stay separate: settlements of a turn do not wait for a neighbour's appends."""
    messages = backlog_on_a_full_disk(opened, disk)
    opened.store.part()
    messages[0].batch.settle(1)
    opened.store.part()
    opened.store.append(3, make_messages(1, 1))
    messages[1].batch.settle(2)
    opened.store.part()
    messages[2].batch.settle(3)
    number = opened.store.flush()
    opened.error()
    opened.error()
    assert left(opened.crash()) == {1: [2, 4]}
    disk.room = None
    opened.wait_for(number)
    assert left(opened.crash()) == {1: [4], 2: list(range(1, 21)), 3: [1]}


@pytest.mark.parametrize("kind", ["write_error", "sync_error"])
def test_after_an_error_of_the_disk_what_it_took_is_written_again(opened: Opened, disk: Disk, kind: str) -> None:
    """After a failed sync, the octets are written again: cache and disk may both have lost them."""
    opened.store.append(1, make_messages(1, 3))
    opened.commit()
    setattr(disk, kind, errno.EIO)
    opened.store.append(1, make_messages(4, 6))
    number = opened.store.flush()
    assert "Input/output error" in str(opened.error())
    opened.store.append(1, make_messages(7, 9))
    assert opened.store.committed == number - 1
    setattr(disk, kind, 0)
    later = opened.store.flush()
    opened.wait_for(later)
    found = opened.crash()
    assert left(found) == {1: list(range(1, 10))}
    first, *_ = sorted((found.directory / "log").glob("*.log"))
    content = first.read_bytes()
    assert left(found.restart()) == {1: list(range(1, 10))}
    assert b"body 3" in content


def test_after_an_error_of_the_disk_the_log_is_kept_small_and_whole(tmp_path: Path) -> None:
    """After an error of the disk, old files are compacted and new messages go to new files."""
    disk = Disk()
    opened = Opened(tmp_path / "broker", disk, segment_bytes=16 << 10)
    kept = []
    for first in range(1, 400, 4):
        if first % 20 == 1:
            disk.sync_error = errno.EIO
        messages = make_messages(first, first + 3, body=lambda seq: b"%d " % seq + bytes(300))
        opened.store.append(1, messages)
        number = opened.store.flush()
        if disk.sync_error:
            opened.error()
            disk.sync_error = 0
        opened.wait_for(number)
        for message in messages[1:]:
            message.batch.settle(message.seq)
        kept.append(first)
    opened.commit()
    for found in (opened.crash(), opened):
        for _ in range(2):
            batches = found.restart().store.batches()[1]
            assert [message.body[:-300] for batch in batches for message in found.store.read(batch)] == [
                b"%d " % first for first in kept
            ]
            assert not found.store.losses
    opened.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_a_commit_that_failed_has_left_does_not_come_back(opened: Opened, disk: Disk, number: int) -> None:
    """The rest of a failed commit does not return, though the next attempt settles all its messages."""
    messages = make_messages(1, 3)
    disk.sync_error = number
    opened.store.append(1, messages)
    opened.store.flush()
    opened.error()
    for message in messages:
        message.batch.settle(message.seq)
    disk.sync_error = 0
    opened.commit()
    assert left(opened.crash()) == {}


def test_a_segment_that_was_made_and_not_used_hides_nothing_of_the_one_before(opened: Opened) -> None:
    """An unused segment, left by a disk error or an unsynced removal, hides nothing of the segment before."""
    opened.store.append(1, make_messages(1, 3))
    opened.commit()
    log = opened.store._log
    segment, _ = log.make(log.next_opening(opened.store._pipeline._number + 1))
    opened.store.append(1, make_messages(4, 6))
    opened.commit()
    found = opened.crash()
    assert (found.directory / "log" / segment.path.name).exists()
    assert left(found) == {1: list(range(1, 7))}
    found.store.append(1, make_messages(7, 9))
    found.commit()
    assert left(found.crash()) == {1: list(range(1, 10))}
    assert left(found.restart()) == {1: list(range(1, 10))}
    assert not found.store.losses


@pytest.mark.parametrize("octets", [10, 40])
def test_a_segment_that_was_being_made_is_not_missed(opened: Opened, octets: int) -> None:
    opened.store.append(1, make_messages(1, 3))
    opened.commit()
    found = opened.crash()
    log = found.store._log
    segment, _ = log.make(log.next_opening(2))
    segment.path.write_bytes(segment.path.read_bytes()[:octets] + bytes(4 << 20))
    again = found.crash()
    assert left(again) == {1: [1, 2, 3]}
    assert not again.store.losses


def test_a_slow_disk_delays_confirms_and_nothing_else(opened: Opened, disk: Disk) -> None:
    disk.delay = 0.3
    opened.store.append(1, make_messages(1, 3))
    first = opened.store.flush()
    opened.store.append(1, make_messages(4, 6))
    second = opened.store.flush()
    assert opened.store.committed < first < second
    opened.wait_for(first)
    assert opened.store.committed < second
    opened.wait_for(second)
    assert left(opened.crash()) == {1: [1, 2, 3, 4, 5, 6]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(directory)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_small_disk_that_was_filled_is_emptied_by_draining_it(small_disk: Path) -> None:
    with closing(Opened(small_disk / "broker")) as opened:
        fill_and_drain(opened)


def fill_and_drain(opened: Opened) -> None:
    backlog, seq = [], 1
    while opened.errors.empty():
        messages = make_messages(seq, seq + 3, body=MEGABYTE)
        seq += 4
        opened.store.append(1, messages)
        number = opened.store.flush()
        opened.work_until(lambda number=number: opened.store.committed >= number or not opened.errors.empty())  # type: ignore[misc]
        backlog += messages
    assert "No space left on device" in str(opened.errors.get())
    assert len(backlog) > 24
    for message in backlog[:-4]:
        message.batch.settle(message.seq)
    opened.store.flush()
    opened.wait_for(number)
    assert opened.store.error is None
    assert left(opened.restart()) == {1: [message.seq for message in backlog[-4:]]}
