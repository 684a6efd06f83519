"""Commits: guarantees of commit numbers, and the behaviour on disk failures."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.store.crashes import Recorder
from tests.store.disks import Disk
from tests.store.opened import Opened, left, make_messages

from jumpmq.store import records
from jumpmq.store.commits import STEP
from jumpmq.store.records import MAX_COUNT
from jumpmq.store.staging import COMMIT_MESSAGES, LARGE_BODY, LARGE_COMMIT_FACTOR


def test_a_number_covers_all_that_was_staged(opened: Opened) -> None:
    numbers = []
    for seq in range(1, 201):
        opened.store.append(1, make_messages(seq, seq))
        numbers.append(opened.store.flush())
    opened.wait_for(numbers[-1])
    assert numbers == sorted(numbers)
    assert opened.commits == sorted(set(opened.commits))
    assert opened.commits[-1] == numbers[-1] == opened.store.committed
    found = opened.crash()
    assert left(found) == {1: list(range(1, 201))}


def test_nothing_staged_needs_no_commit(opened: Opened) -> None:
    assert opened.store.flush() == 0
    opened.store.put("queue", "q", 1)
    assert opened.commit() == 1
    assert opened.store.flush() == 1
    assert opened.commits == [1]


def test_work_gathers_while_a_commit_is_written(opened: Opened) -> None:
    """A thousand flushes during a commit share few commits."""
    for seq in range(1, 1001):
        opened.store.append(1, make_messages(seq, seq))
        number = opened.store.flush()
    opened.wait_for(number)
    assert len(opened.commits) < 500
    assert opened.store.staged_bytes == 0


@pytest.mark.parametrize(("size", "turns"), [(LARGE_BODY, LARGE_COMMIT_FACTOR), (LARGE_BODY // 2, 1)])
def test_more_of_large_bodies_than_of_others_goes_into_a_commit(tmp_path: Path, size: int, turns: int) -> None:
    opened = Opened(tmp_path / "broker", commit_bytes=2 * LARGE_BODY)
    each = 2 * LARGE_BODY // size
    numbers = []
    for turn in range(20):
        opened.store.append(1, make_messages(turn * each + 1, turn * each + each, lambda seq: bytes(size)))
        numbers.append(opened.store.flush(begin=False))
    assert {numbers.count(number) for number in sorted(set(numbers))[1:-1]} == {turns}
    opened.wait_for(numbers[-1])
    assert left(opened.crash()) == {1: list(range(1, 20 * each + 1))}
    opened.close()


def test_a_small_commit_on_a_quick_disk_is_done_when_it_is_begun(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker", Recorder())
    at_once = 0
    for seq in range(1, 1001):
        opened.store.append(1, make_messages(seq, seq))
        number = opened.store.flush(begin=False)
        assert opened.store.begins
        opened.store.begin(here=True)
        at_once += opened.store.committed == number
        opened.wait_for(number)
        if at_once == 10:
            break
    assert at_once == 10
    opened.store.append(1, make_messages(seq + 1, seq + 1, body=lambda seq: bytes(1 << 20)))
    number = opened.store.flush(begin=False)
    opened.store.begin(here=True)
    assert opened.store.committed < number, "a large one is written by the thread"
    opened.wait_for(number)
    assert left(opened.restart()) == {1: list(range(1, seq + 2))}
    opened.close()


def test_what_belongs_together_over_several_turns_is_in_one_commit(opened: Opened) -> None:
    taken = make_messages(1, 3)
    opened.store.append(1, taken)
    opened.commit()
    opened.store.hold()
    for seq in range(1, 21):
        opened.store.append(2, make_messages(seq, seq, body=lambda seq: bytes(1 << 20)))
        opened.store.flush()
    opened.store.put("queue", "another's", 1)
    opened.store.flush()
    assert not opened.store.begins
    taken[0].batch.settle_range(1, 3)
    number = opened.store.flush()
    assert left(opened.crash()) == {1: [1, 2, 3]}
    opened.store.release()
    assert opened.commit() == number
    assert left(opened.crash()) == {2: list(range(1, 21))}


def test_a_huge_commit_is_laid_out_in_steps_and_others_stage_and_settle_in_between(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[int] = []
    block = records.messages_block

    def noted(*args: Any, **named: Any) -> Any:
        laid_out.append(len(args[1]))
        return block(*args, **named)

    monkeypatch.setattr(records, "messages_block", noted)
    count = 3 * COMMIT_MESSAGES
    taken = make_messages(1, 100)
    opened.store.append(1, taken)
    opened.commit()
    opened.store.hold()
    opened.store.append(2, (huge := make_messages(1, count)))
    opened.store.append(3, make_messages(1, count))
    taken[0].batch.settle_range(1, 10)
    opened.store.release()
    number = opened.store.flush()
    most = seq = 0
    while opened.store.committed < number:
        seq += 1
        opened.store.append(1, make_messages(100 + seq, 100 + seq))
        taken[0].batch.settle(10 + seq)
        huge[-seq].batch.settle(huge[-seq].seq)
        if seq == 3:
            opened.store.drop_queue(3)
        opened.store.flush()
        most, laid_out[:] = max(most, sum(laid_out)), []
        opened.work_until(lambda: bool(laid_out) or opened.store.committed >= number)
    assert most <= STEP + MAX_COUNT
    assert seq > count // STEP
    found = left(opened.crash())
    assert found[2] == list(range(1, len(found[2]) + 1)) and count - seq <= len(found[2]) <= count
    opened.commit()
    assert left(opened.crash()) == {1: list(range(11 + seq, 101 + seq)), 2: list(range(1, count - seq + 1))}


def test_nobody_waits_for_a_slow_disk(tmp_path: Path) -> None:
    disk = Disk()
    disk.delay = 0.02
    opened = Opened(tmp_path / "broker", disk)
    for seq in range(1, 4):
        opened.store.append(1, make_messages(seq, seq))
        number = opened.store.flush(begin=False)
        opened.store.begin(here=True)
        assert opened.store.committed < number and not opened.store.begins
        opened.wait_for(number)
    opened.close()


def test_settling_and_reading_while_the_writer_writes(opened: Opened) -> None:
    """Every message stays until settled, with consumers as fast as publishers."""
    unsettled = []
    for round in range(200):
        messages = make_messages(1 + 20 * round, 20 + 20 * round)
        opened.store.append(1, messages)
        opened.store.flush()
        unsettled += messages
        for message in unsettled[: len(unsettled) // 2]:
            assert message.seq in {other.seq for other in opened.store.read(message.batch)}
            message.batch.settle(message.seq)
        del unsettled[: len(unsettled) // 2]
    found = opened.restart()
    assert left(found) == {1: [message.seq for message in unsettled]}


def test_other_threads_read_meanwhile(opened: Opened) -> None:
    messages = make_messages(1, 1000)
    opened.store.append(1, messages)
    opened.commit()
    batch, counts = messages[0].batch, list[int]()
    threads = [
        threading.Thread(target=lambda: counts.extend(len(opened.store.read(batch, 1, 1000)) for _ in range(20)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for seq in range(1001, 1200):
        opened.store.append(1, make_messages(seq, seq))
        opened.store.flush()
    for thread in threads:
        thread.join()
    assert counts == [1000] * 60


@pytest.mark.parametrize("written", [True, False], ids=["rejected", "overflowed before their own commit"])
def test_a_commit_holds_only_what_was_settled_before_its_cut(opened: Opened, written: bool) -> None:
    """Messages settled while a large commit is written are still present after a crash behind the commit."""
    originals = make_messages(1, 500)
    opened.store.append(1, originals)
    if written:
        opened.commit()
    opened.store.append(2, make_messages(1, 20, body=lambda seq: bytes(1 << 20)))
    number = opened.store.flush()
    found: list[dict[int, list[int]]] = []
    opened.tell = lambda receipt: found.append(left(opened.crash())) if receipt == number else None
    for first in range(0, 500, 50):
        dead = originals[first : first + 50]
        opened.store.append(3, make_messages(first + 1, first + 50))
        for message in dead:
            message.batch.settle(message.seq)
        opened.store.flush()
    opened.wait_for(number)
    queue, letters = found[0].get(1, []), found[0].get(3, [])
    assert sorted(queue + letters) == list(range(1, 501))


def test_what_nobody_waits_for_is_put_off_and_left_out_once_it_is_settled(opened: Opened) -> None:
    messages = make_messages(1, 100, body=lambda seq: bytes(10_000))
    opened.store.append(1, messages)
    receipt = opened.store.flush(settlements=False, waiting=False)
    opened.store.append(1, make_messages(101, 110))
    assert opened.store.flush(settlements=False, waiting=False) == receipt
    assert opened.store.staged_bytes > 1_000_000
    batch = messages[0].batch
    batch.settle_range(1, 50)
    batch.settle_range(53, 99)
    assert opened.store.flush(settlements=False, waiting=False) == receipt
    assert opened.store.staged_bytes < 40_000
    assert opened.store.committed < receipt
    opened.commit()
    assert opened.store.committed == receipt
    assert left(opened.crash()) == {1: [51, 52, *range(100, 111)]}
    batch.settle_range(51, 52)
    batch.settle_range(100, 105)
    opened.commit()
    assert left(opened.crash()) == {1: list(range(106, 111))}
    opened.store.append(1, make_messages(111, 120))
    opened.store.flush(settlements=False, waiting=False)
    batch.settle_range(106, 120)
    opened.commit()
    assert left(opened.crash()) == {}
    assert left(opened.restart()) == {}


def test_much_is_not_put_off(opened: Opened) -> None:
    for first in range(1, 42):
        opened.store.append(1, make_messages(first, first, body=lambda seq: bytes(1_000_000)))
        receipt = opened.store.flush(settlements=False, waiting=False)
    opened.work_until(lambda: opened.store.committed > 0)
    assert opened.store.committed <= receipt
