"""Stored, incomplete commits are readable; reports, removals and deletions wait for completion."""

import errno
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.store.disks import Disk
from tests.store.lagging import Held, Lagging
from tests.store.opened import Opened, left, make_messages, seqs
from tests.store.stream_opened import Opened as OpenedStreams
from tests.store.stream_opened import bodies, message

from jumpmq.store import pipeline
from jumpmq.store.completion import MOST_COMMITS, ByPosition
from jumpmq.store.lineage import read_lineage
from jumpmq.store.log import OFFSET_BITS
from jumpmq.store.records import OPENING_SIZE

if TYPE_CHECKING:
    from jumpmq.broker.commit.receipts import Numbered
    from jumpmq.store.staging import Staging
    from jumpmq.store.stream_log import StreamLog
    from jumpmq.store.upkeep import LogUpkeep

SEGMENT = 16 << 10


def store_commits(opened: Opened | OpenedStreams, count: int, turn) -> None:  # type: ignore[no-untyped-def]
    """Store so many commits of one turn each, without waiting for completion."""
    for number in range(count):
        turn(number)
        opened.store.flush()
        opened.work_until(lambda: opened.store._pipeline.state is pipeline.IDLE)


def test_nothing_is_told_or_removed_for_what_is_not_complete(tmp_path: Path) -> None:
    held = Held()
    opened = Opened(tmp_path / "broker", segment_bytes=SEGMENT, completion=lambda: held)
    first = make_messages(1, 20, body=lambda seq: bytes(3000))
    opened.store.append(1, first)
    opened.commit()
    told = list(opened.commits)
    held.hold()
    for one in first:
        one.batch.settle(one.seq)
    logs = opened.directory / "log"
    before = {path.name for path in logs.glob("*.log")}

    def turn(number: int) -> None:
        opened.store.append(2, make_messages(3 * number + 1, 3 * number + 3, body=lambda seq: bytes(3000)))

    store_commits(opened, 12, turn)
    assert opened.commits == told and opened.store.committed == told[-1]
    assert before < {
        path.name for path in logs.glob("*.log")
    }  # the log continues in new segments, and keeps these files
    (batch, *_) = {one.batch: None for one in first}
    assert batch.positions and opened.store.staged_bytes > 0
    assert left(opened.crash()) == {2: list(range(1, 37))}
    held.release()
    opened.work_until(lambda: opened.store.committed > told[-1] and not opened.store.dirty)
    opened.commit()
    assert opened.commits == sorted(opened.commits)
    opened.work_until(lambda: not before <= {path.name for path in logs.glob("*.log")})
    opened.close()


def test_so_much_is_stored_and_no_more(tmp_path: Path) -> None:
    held = Held()
    opened = Opened(tmp_path / "broker", completion=lambda: held)
    opened.store.append(1, make_messages(1, 1))
    opened.commit()
    held.hold()

    def turn(number: int) -> None:
        opened.store.append(1, make_messages(number + 2, number + 2))

    store_commits(opened, MOST_COMMITS + 10, turn)
    assert left(opened.crash()) == {1: list(range(1, MOST_COMMITS + 2))}
    held.release()
    opened.commit()
    assert left(opened.crash()) == {1: list(range(1, MOST_COMMITS + 12))}
    opened.close()


def test_a_stop_before_that_is_not_clean_and_loses_nothing(tmp_path: Path) -> None:
    held = Held()
    held.patience = 0.05
    opened = Opened(tmp_path / "broker", segment_bytes=SEGMENT, completion=lambda: held)
    opened.store.append(1, make_messages(1, 5))
    opened.commit()
    held.hold()
    opened.store.append(1, make_messages(6, 9))
    told = list(opened.commits)
    opened.store.close()
    assert opened.commits == told
    with closing(sqlite3.connect(tmp_path / "broker" / "jumpmq.db")) as index:
        assert index.execute("SELECT clean_commit FROM replay").fetchall() == [(0,)]
    again = Opened(tmp_path / "broker")
    assert left(again) == {1: list(range(1, 10))}
    again.close()


def test_streams_end_and_let_go_where_it_is_complete(tmp_path: Path) -> None:
    held = Held()
    opened = OpenedStreams(tmp_path, segment_bytes=SEGMENT, completion=held)
    opened.log.segment_bytes = 2000
    opened.append(*(message(number, 300) for number in range(10)))
    held.hold()
    store_commits(opened, 20, lambda number: opened.files.append(opened.log, [message(10 + number, 300)]))
    assert (opened.log.end, bodies(opened.log)) == (10, list(range(10)))
    held.release()
    opened.work_until(lambda: opened.log.end == 30)
    opened.commit()
    assert bodies(opened.log) == list(range(30))
    opened.close()
    opened = OpenedStreams(tmp_path)
    assert bodies(opened.log) == list(range(30)) and not opened.losses
    opened.close()


def test_receipts_come_in_order_however_late(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker", segment_bytes=SEGMENT, completion=lambda: Lagging(Random(3)))
    waiting: list[int] = []
    for number in range(1, 200):
        (one,) = make_messages(number, number, body=lambda seq: bytes(500))
        opened.store.append(1, [one])
        waiting.append(opened.store.flush())
        if number % 7 == 0:
            opened.wait_for(waiting[-5])
            one.batch.settle(one.seq)
    opened.commit()
    assert opened.commits == sorted(set(opened.commits))
    expected = [number for number in range(1, 200) if number % 7]
    assert seqs(opened.store, [*dict.fromkeys(opened.restart().store.batches()[1])]) == expected
    opened.close()


def test_nothing_is_moved_of_a_queue_whose_drop_is_not_complete(tmp_path: Path) -> None:
    """Messages of a queue are not moved before its drop is complete: a crash would bring the queue back."""
    held = Held()
    opened = Opened(tmp_path / "broker", completion=lambda: held)
    messages = make_messages(1, 3)
    opened.store.append(1, messages)
    opened.store.append(2, make_messages(1, 1))
    opened.commit()
    held.hold()
    store_commits(opened, 1, lambda number: opened.store.drop_queue(1))
    opened.store.move([(messages[0].batch, messages)])
    store_commits(opened, 1, lambda number: opened.store.append(2, make_messages(2, 2)))
    assert left(opened.crash()) == {2: [1, 2]}
    held.release()
    opened.commit()
    assert left(opened.crash()) == {2: [1, 2]}
    opened.close()


def test_commits_are_complete_by_position(tmp_path: Path) -> None:
    """Commits are complete by position, with answers of copies before or after the local disk's."""
    stored: list[int] = []
    copies = ByPosition(stored.append)
    opened = Opened(tmp_path / "broker", segment_bytes=SEGMENT, completion=lambda: copies)
    for number in range(30):
        opened.store.append(1, make_messages(number + 1, number + 1, body=lambda seq: bytes(3000)))
        if number % 3 == 0 and stored:
            copies.complete(stored[-1] + (1 << 20))  # behind the end of this disk's log: the disk has not answered yet
        receipt = opened.store.flush()
        opened.work_until(lambda number=number: len(stored) > number)  # type: ignore[misc]
        if opened.store.committed < receipt:
            copies.complete(stored[-1] - 1)
            opened.store.completed()
            assert opened.store.committed < receipt and opened.store.is_incomplete
            copies.complete(stored[-1])
            copies.complete(stored[0])  # a late answer takes nothing back
        opened.wait_for(receipt)
        assert not opened.store.is_incomplete
    segments = [position >> OFFSET_BITS for position in stored]
    assert stored == sorted(stored) and len(set(segments)) > 3
    (*_, (segment, _, _, end)) = (one for one in read_lineage(opened.directory).lineage if one.end > OPENING_SIZE)
    assert stored[-1] == segment << OFFSET_BITS | end
    copies.complete(stored[-1] + (1 << 40))
    opened.close()


def test_so_many_octets_are_stored_and_no_more(tmp_path: Path) -> None:
    stored: list[int] = []
    copies = ByPosition(stored.append)
    copies.most_bytes = 10_000
    opened = Opened(tmp_path / "broker", completion=lambda: copies)
    for number in range(1, 7):
        opened.store.append(1, make_messages(number, number, body=lambda seq: bytes(3000)))
        opened.store.flush(begin=False)
        opened.store.begin()
        opened.work_until(lambda: opened.store._pipeline.state is pipeline.IDLE)
        assert opened.store.begins is False
    assert len(stored) == 4
    copies.complete(stored[0])
    opened.work_until(lambda: len(stored) == 5)
    copies.complete(1 << 60)
    opened.commit()
    assert left(opened.crash()) == {1: [1, 2, 3, 4, 5, 6]}
    opened.close()


if TYPE_CHECKING:

    def what_mypy_refuses(
        numbered: Numbered, staging: Staging, stream: StreamLog, upkeep: LogUpkeep, stored: int
    ) -> None:
        """Mypy rejects the number of a commit that is only stored in place of a complete commit's number."""
        numbered.completed = stored  # type: ignore[assignment]
        staging.succeed(stored)  # type: ignore[arg-type]
        stream.publish([], stored)  # type: ignore[arg-type]
        upkeep.write_index(stored)  # type: ignore[arg-type]
        upkeep.drop(1, stored)  # type: ignore[arg-type]


class Stuck(Disk):
    """A disk whose writes wait until :attr:`free` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()

    def write(self, file: int, offset: int, buffers: Sequence[Any]) -> None:
        self.free.wait()
        super().write(file, offset, buffers)


def test_a_segment_stays_while_the_last_of_its_settlements_is_being_written(tmp_path: Path) -> None:
    held, disk = Held(), Stuck()
    opened = Opened(tmp_path / "broker", disk, segment_bytes=SEGMENT, completion=lambda: held)
    originals = make_messages(1, 3, body=lambda seq: bytes(8000))
    opened.store.append(1, originals)
    opened.commit()
    others = 0
    while opened.store._upkeep._indexed < 2:  # the index is written beside commits, and begins after one of them
        others += 1
        opened.store.append(2, make_messages(others, others))
        opened.commit()
    segment = min((opened.directory / "log").glob("*.log"))
    held.hold()

    def settle_two(number: int) -> None:
        for one in originals[:2]:
            one.batch.settle(one.seq)

    store_commits(opened, 1, settle_two)
    disk.free.clear()
    originals[2].batch.settle(3)  # and the dead letter, in one commit
    opened.store.append(3, make_messages(1, 1))
    dead_lettered = opened.store.flush()
    held.release()
    opened.wait_for(dead_lettered - 1)
    opened.work_until(lambda: not opened.store._background.is_working)
    assert left(opened.crash()) == {1: [3], 2: [*range(1, others + 1)]}
    disk.free.set()
    opened.wait_for(dead_lettered)
    assert left(opened.crash()) == {2: [*range(1, others + 1)], 3: [1]}
    opened.work_until(lambda: not segment.exists())
    opened.close()


def test_a_commit_begun_while_an_earlier_one_is_told_is_noted_after_it(tmp_path: Path) -> None:
    held = Held()
    opened = Opened(tmp_path / "broker", segment_bytes=SEGMENT, completion=lambda: held)
    opened.store.append(2, make_messages(1, 1))
    opened.commit()
    held.hold()
    messages = make_messages(1, 3, body=lambda seq: bytes(8000))
    store_commits(opened, 1, lambda number: opened.store.append(1, messages))

    def settle(number: int) -> None:
        opened.tell = lambda number: None
        for one in messages:
            one.batch.settle(one.seq)
        opened.store.flush(begin=False)
        opened.store._writer._seconds = 0.0  # a quick disk: written while the caller waits
        opened.store.begin(here=True)

    opened.tell = settle
    told = len(opened.commits)
    held.release()
    opened.work_until(lambda: len(opened.commits) == told + 2)
    assert opened.commits == sorted(opened.commits)
    assert messages[0].batch not in opened.store._upkeep._by_queue.get(1, ())
    assert left(opened.crash()) == {2: [1]}
    opened.close()


def test_an_earlier_commit_that_is_complete_does_not_part_what_came_back(tmp_path: Path) -> None:
    held, disk = Held(), Disk()
    opened = Opened(tmp_path / "broker", disk, completion=lambda: held)
    opened.store._linger_bytes = opened.store._commit_bytes = 1000
    opened.store.append(2, make_messages(1, 1))
    opened.commit()
    held.hold()
    store_commits(opened, 1, lambda number: opened.store.append(2, make_messages(2, 2)))
    disk.write_error = errno.ENOSPC
    opened.store.append(2, make_messages(3, 3))
    failed = opened.store.flush()
    opened.error()
    held.release()
    opened.wait_for(failed - 1)
    opened.work_until(lambda: opened.store._pipeline.state is pipeline.PipelineStep.RETRYING)
    (one,) = make_messages(1, 1, body=lambda seq: bytes(2000))
    opened.store.append(1, [one])
    opened.store.flush()
    one.batch.settle(1)  # on a full disk settlements go first, except those of unwritten messages
    last = opened.store.flush()
    disk.write_error = 0
    opened.wait_for(last)
    assert left(opened.crash()) == {2: [1, 2, 3]}
    opened.close()
