"""A store whose process is killed at any moment holds every message of every commit that was reported."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.store.committer import QUEUES
from tests.store.opened import Opened, killed_now

ROOT = Path(__file__).parents[2]
ROUNDS = 6


class Account:
    """What the killed processes reported, against which the file is held."""

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
    """Let the committer work for so many seconds after its first commit."""
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
        # Looked at in a copy: the next round finds the file as the kill left it.
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
