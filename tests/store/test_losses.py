"""Messages missing from a data directory are reported by queue and number, until acknowledged."""

import re
import shutil
from pathlib import Path

import pytest
from tests.store.opened import Opened, killed_now, left, make_messages

from jumpmq.store import losses
from jumpmq.store.files import Files
from jumpmq.store.inspection import check, salvage
from jumpmq.store.kinds import LOSS
from jumpmq.store.scan import OpenSegment

QUEUES = {1: set(range(1, 202)), 2: set(range(1, 202)) - set(range(41, 61)), 3: set(range(1, 202, 2))}
"""Messages of each queue of :func:`make`."""


RANGES = re.compile(r"messages ((?:\d+ )?to \d+(?:, \d+ to \d+)*) of (queue '?[a-z]+'? ?\d*)")


def make(directory: Path) -> Opened:
    """Make a store of several segments: a full queue, a queue with acknowledged messages, a queue with gaps."""
    opened = Opened(directory, segment_bytes=16 << 10)
    opened.store.put("queue", "orders", {"id": 1, "name": "orders", "vhost": "/"})
    acknowledged = []
    for first in range(1, 202, 5):
        for queue in QUEUES:
            messages = make_messages(first, min(first + 4, 201), body=lambda seq: b"body %d" % seq * 10)
            acknowledged += [one for one in messages if queue == 2 and 41 <= one.seq <= 60]
            opened.store.append(queue, messages if queue < 3 else [one for one in messages if one.seq % 2])
        opened.commit()
        if first == 61:
            for message in acknowledged:
                message.batch.settle(message.seq)
    opened.work_until(lambda: len(opened.store._log.segments) > 3 and not opened.store._upkeep.has_snapshot)
    opened.commit()
    return opened


@pytest.fixture(params=["stopped", "killed"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    opened = make(tmp_path / "broker")
    copy = killed_now(opened.directory, tmp_path / "killed")
    opened.close()
    return opened.directory if request.param == "stopped" else copy


def named(sentences: list[str]) -> dict[int, set[int]]:
    """Return the reported numbers of losses, by queue."""
    found: dict[int, set[int]] = {1: set(), 2: set(), 3: set()}
    for loss in sentences:
        for ranges, queue in RANGES.findall(loss):
            number = 1 if queue.startswith("queue 'orders'") else int(queue.removeprefix("queue number "))
            for one in ranges.split(", "):
                first, last = re.fullmatch(r"(\d*) ?to (\d+)", one).groups()  # type: ignore[union-attr]
                found[number].update(range(int(first or 1), int(last) + 1))
    return found


def boundary(path: Path) -> int:
    """Return the offset where a commit in the middle of a segment ends."""
    file = OpenSegment(Files(), path)
    commits = list(file.commits())
    file.close()
    return commits[len(commits) // 2].end


def hurt_copies(directory: Path, to: Path) -> list[tuple[str, Path]]:
    """Return copies of a directory, with one log file deleted or cut at the end of a commit."""
    copies = []
    for path in sorted(directory.glob("log/*.log")):
        for what in ("deleted", "cut"):
            copy = shutil.copytree(directory, to / f"{what} {path.stem}")
            file = copy / "log" / path.name
            if what == "cut":
                file.write_bytes(path.read_bytes()[: boundary(path)])
            else:
                file.unlink()
            copies.append((what, file))
    return copies


def test_a_file_that_is_deleted_or_cut_is_missed(directory: Path, tmp_path: Path) -> None:
    last = max(directory.glob("log/*.log"))
    whole = Opened(directory)
    assert {queue: set(numbers) for queue, numbers in left(whole).items()} == QUEUES
    assert not whole.store.losses
    copies = hurt_copies(directory, tmp_path / "hurt")
    for what, file in copies:
        if "killed" in str(directory) and file.name == last.name and what == "cut":
            continue  # so ends a log whose last commits were never written
        hurt = file.parent.parent
        said = list(check(hurt))
        opened = Opened(hurt)
        found = [loss for loss, _ in opened.store.losses.listed()]
        assert found and set(found) <= set(said), file
        assert any(file.name in loss for loss in found), file
        served = left(opened)
        for queue, numbers in QUEUES.items():
            missing = numbers - set(served.get(queue, ()))
            if file.name != last.name or "killed" not in str(directory):
                assert missing <= named(found)[queue], (file, queue)
            assert len(served.get(queue, ())) == len(set(served.get(queue, ())))
        opened.commit()
        assert [loss for loss, _ in opened.restart().store.losses.listed()] == found, file
        assert left(opened) == served
        opened.store.acknowledge_losses()
        opened.commit()
        assert not opened.restart().store.losses, file
        assert left(opened) == served
        assert not opened.restart().store.losses
        assert list(check_when_closed(opened)) == []
    whole.close()


def test_what_is_left_before_a_gap_stays_where_what_is_missing_was_acknowledged(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker", segment_bytes=4 << 10)
    messages = []
    for seq in range(1, 21):  # messages appended to a full segment still belong to the previous batch
        messages += make_messages(seq, seq, body=lambda seq: bytes(500))
        opened.store.append(1, messages[-1:])
        opened.commit()
    for message in messages[3:]:
        message.batch.settle(message.seq)
    opened.close()
    (path, *_) = sorted(opened.directory.glob("log/*.log"))
    file = OpenSegment(Files(), path)
    ends = [commit.end for commit in file.commits()]
    file.close()
    path.write_bytes(path.read_bytes()[: ends[2]])
    found = Opened(opened.directory)
    assert left(found)[1] == [1, 2, 3]
    found.close()


def check_when_closed(opened: Opened) -> list[str]:
    opened.close()
    return list(check(opened.directory))


def test_what_is_left_of_a_batch_counts_as_unsettled_where_what_was_settled_is_missing(tmp_path: Path) -> None:
    opened = Opened(tmp_path, segment_bytes=16 << 10)
    first = make_messages(1, 3)
    opened.store.append(1, first)
    opened.commit()
    for message in first[:2]:
        message.batch.settle(message.seq)
    opened.store.put("filler", "1", "x" * (17 << 10))
    opened.store.flush()
    opened.store.append(1, make_messages(4, 6))  # in the same batch, and in the next segment
    opened.commit()
    opened.store.put("filler", "2", "x" * (17 << 10))
    opened.commit()
    opened.close()
    (tmp_path / "log" / "0000000001.log").unlink()
    found = Opened(tmp_path)
    assert [loss for loss, _ in found.store.losses.listed() if "messages 3 to 3" in loss]
    found.store.acknowledge_losses()
    found.store.put("start", "last", 1)  # so that the stop writes the index
    (batch,) = found.restart().store.batches()[1]
    assert (batch.remaining, batch.settled.count) == (3, 0)
    found.close()


def test_files_that_were_given_each_others_names_are_read_all_the_same(directory: Path) -> None:
    one, other = sorted(directory.glob("log/*.log"))[:2]
    kept = one.rename(one.with_name("kept"))
    other.rename(one)
    kept.rename(other)
    opened = Opened(directory)
    assert {queue: set(numbers) for queue, numbers in left(opened).items()} == QUEUES
    assert not opened.store.losses
    opened.store.append(1, make_messages(202, 203))
    opened.commit()
    assert left(opened.restart())[1] == [*range(1, 204)]
    assert check_when_closed(opened) == []


def kept(directory: Path) -> dict[str, float]:
    return dict(losses.read(directory))


def test_losses_recorded_in_the_log_go_to_the_file(tmp_path: Path) -> None:
    """Losses in the log, as earlier versions recorded them, move to the file."""
    opened = Opened(tmp_path / "broker")
    opened.store.put(LOSS, "one is gone", 5.5)
    opened.store.put(LOSS, "another was", -4.5)
    opened.restart()
    assert opened.store.losses.listed() == [("one is gone", 5.5)]
    opened.work_until(lambda: opened.store.dirty)
    assert kept(opened.directory) == {"one is gone": 5.5, "another was": -4.5}
    opened.commit()
    crashed = opened.crash()
    assert crashed.store.losses.listed() == [("one is gone", 5.5)]
    assert not list(crashed.store.definitions())
    crashed.store.losses.add("another was")
    assert len(crashed.store.losses) == 1
    crashed.store.acknowledge_losses()
    assert not crashed.restart().store.losses and len(kept(crashed.directory)) == 2
    opened.close()
    assert list(check(opened.directory)) == ["one is gone"]
    list(salvage(opened.directory, tmp_path / "salvaged", lambda to: Opened(to).store))
    assert list(check(tmp_path / "salvaged")) == ["one is gone"]


def test_losses_are_a_matter_of_the_disk(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker")
    opened.store.losses.add("one is gone")
    opened.store.keep_losses()
    opened.store.put("kind", "key", 1)
    opened.commit()
    opened.work_until(lambda: bool(kept(opened.directory)))
    copy = killed_now(opened.directory, tmp_path / "copy")
    (copy / "losses").unlink()
    other = Opened(copy)
    assert not other.store.losses and len(list(other.store.definitions())) == 1
    other.close()
    opened.close()


def test_a_file_of_losses_that_is_damaged_or_refused_holds_up_nothing(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "broker")
    for loss in ("one is gone", "two are gone"):
        opened.store.losses.add(loss)
    path = opened.directory / "losses"
    path.with_name("losses.new").mkdir()
    opened.restart()
    assert not path.exists() and not opened.store.losses  # the disk refused the record
    for loss in ("one is gone", "two are gone"):
        opened.store.losses.add(loss)
    opened.store.keep_losses()
    opened.work_until(lambda: not opened.store._background.is_working)
    opened.store.completed()
    path.with_name("losses.new").rmdir()
    opened.store.keep_losses()
    opened.work_until(path.exists)
    octets = bytearray(path.read_bytes())
    octets[12] ^= 16
    path.write_bytes(octets)
    assert [loss for loss, _ in opened.restart().store.losses.listed()] == ["two are gone"]
    path.unlink()
    path.mkdir()
    assert not opened.restart().store.losses
    path.rmdir()
    opened.close()
