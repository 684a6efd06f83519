"""Freed memory that the C library keeps."""

import subprocess
import sys

import pytest

from jumpmq.broker.memory.heap import STATM

PROGRAM = """
from jumpmq.broker.memory.heap import KeptMemory
from jumpmq.queues.memory import MemoryAccount
from pathlib import Path

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

account = MemoryAccount(limit=3200 << 20)
kept = KeptMemory(account)
before = resident()
for octets, limit in ((300 << 20, 3200 << 20), (0, 640 << 20)):
    account.total = octets
    account.limit = limit
    kept.look()
    held = [b"x" * (1 << 20) for _ in range(300)]
    held.clear()
    print(resident() - before >> 20)
"""


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is known of Linux alone")
def test_as_much_is_kept_as_was_held_not_long_ago_and_the_limit_allows() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    much, little = map(int, printed.split())
    assert 250 < much < 350
    assert little < 100


LATER = """
from jumpmq.broker.memory import heap
from jumpmq.queues.memory import MemoryAccount

heap.KeptMemory(MemoryAccount(limit=3200 << 20))
freed = heap.FreedMemory(MemoryAccount())
held = [b"x" * 100_000 for _ in range(400)]
pins = [b"x" * 2_000 for _ in range(100)]
freed.return_at_intervals(0)
full = freed._beside()
held.clear()
freed.return_at_intervals(0)
print(full - freed._beside())
heap.RETRIED = 0.0
freed.return_at_intervals(0)
print(full - freed._beside())
"""


@pytest.mark.skipif(not STATM.exists(), reason="the system does not say what is resident")
def test_what_was_in_use_at_the_last_attempt_goes_back_later() -> None:
    ended = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    soon, later = map(int, ended.stdout.split())
    assert soon < 5_000_000 and later > 30_000_000
