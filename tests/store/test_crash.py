"""After a kill at any moment, a store holds every message of every commit that was reported."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.store.committer import QUEUES
from tests.store.opened import Opened, killed_now
from tests.waiting import until

from jumpmq.store import schema
from jumpmq.store.files import Files
from jumpmq.store.index import first_segment_behind
from jumpmq.store.log import DIRECTORY, file_name
from jumpmq.store.records import Opening
from jumpmq.store.scan import OpenSegment

ROOT = Path(__file__).parents[2]
ROUNDS = 6


class Account:
    """Reports of the killed processes, compared with the store."""

    def __init__(self) -> None:
        self.committed = dict.fromkeys(QUEUES, 0)
        self.settled: dict[int, set[int]] = {queue_id: set() for queue_id in QUEUES}
        self.commits = 0

    def read(self, line: str) -> None:
        event, queue_id, seq = line.split()
        if event == "settle":
            self.settled[int(queue_id)].add(int(seq))
        else:
            self.committed[int(queue_id)] = int(seq)
            self.commits += 1


def run_and_kill(directory: Path, seed: int, last: list[int], seconds: float, account: Account) -> None:
    """Run the committer for so many seconds after the first commit."""
    command = [sys.executable, "-m", "tests.store.committer", str(directory), str(seed), *map(str, last)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        killer = threading.Timer(20, process.kill)
        killer.start()
        begun = False
        for line in process.stdout:
            if line.endswith("\n"):  # the last may be cut
                account.read(line)
            if not begun and line.startswith("commit"):
                begun = True
                killer.cancel()
                killer = threading.Timer(seconds, process.kill)
                killer.start()
        killer.cancel()


@pytest.mark.slow
def test_killed_in_the_midst_of_commits(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    account = Account()
    last = [0] * len(QUEUES)
    for round in range(ROUNDS):
        run_and_kill(tmp_path / "broker", seed + round, last, chance.uniform(0.0, 0.4), account)
        # Checked in a copy: the next round opens the file as the kill left it.
        opened = Opened(killed_now(tmp_path / "broker", tmp_path / f"round {round}"))
        assert not opened.store.clean
        batches = opened.store.batches()
        for i, queue_id in enumerate(QUEUES):
            found = [message for batch in batches.get(queue_id, []) for message in opened.store.read(batch)]
            seqs = [message.seq for message in found]
            last[i] = max([*seqs, account.committed[queue_id], last[i]])
            confirmed = set(range(1, account.committed[queue_id] + 1))
            where = f"queue {queue_id}, round {round}, seed {seed}"
            assert seqs == sorted(set(seqs)), where
            assert confirmed - account.settled[queue_id] <= set(seqs), where
            assert all(message.body == b"body %d" % message.seq for message in found), where
        opened.close()
    assert account.commits > 10 * ROUNDS


def test_a_segment_whose_first_commit_was_never_finished_is_no_gap(tmp_path: Path) -> None:
    """A segment without a finished first commit is no gap: the next segment begins with the same commit number."""
    opened = Opened(tmp_path / "data", segment_bytes=4096)

    def index_grows() -> bool:
        opened.store.put("global_parameter", "one", "x" * 1000)
        opened.commit()
        return first_segment_behind(tmp_path / "data" / schema.FILE_NAME) > 1

    until(index_grows)
    crashed = killed_now(tmp_path / "data", tmp_path / "crashed")
    opened.close()
    segment, log = first_segment_behind(crashed / schema.FILE_NAME), crashed / DIRECTORY
    for path in log.glob("*.log"):
        if int(path.stem) > segment:
            path.unlink()
    file = OpenSegment(Files(), log / file_name(segment))
    assert file.opening is not None
    first, end = file.opening.first_commit, next(file.commits()).end
    file.close()
    path = log / file_name(segment)
    path.write_bytes(path.read_bytes()[: end - 20] + bytes(20))
    (log / file_name(segment + 1)).write_bytes(Opening(segment + 1, first, 7).encode())
    opened = Opened(crashed)
    assert not opened.store.losses, opened.store.losses.listed()
    opened.close()
