"""A broker starts at once, however much is stored, and takes little memory while idle."""

import os
import subprocess
import sys
from pathlib import Path

from tests.store.opened import Opened, killed_now, make_messages

PROGRAM = """
import sys, pathlib
from jumpmq.store import Store
store = Store.open(pathlib.Path(sys.argv[1]), on_commit=lambda number: None)
store.put("queue", "q", {"durable": True})
store.batches()
store.close()
sys.exit("pyarrow" in sys.modules)
"""


def test_arrow_is_not_loaded_before_there_are_messages(tmp_path: Path) -> None:
    """Arrow is loaded with the first messages: loading takes 0.2 s and 40 MB."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    finished = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, timeout=200, check=False)
    assert finished.returncode == 0


def test_a_long_backlog_is_not_read_at_the_start(opened: Opened) -> None:
    for first in range(1, 200_001, 1000):
        opened.store.append(first % 7, make_messages(first, first + 999, body=lambda seq: bytes(200)))
        opened.store.flush()
    opened.commit()
    copy = killed_now(opened.directory, opened.directory.with_name("killed"))
    restarted = Opened(copy)
    batches = restarted.store.batches()
    assert all(batch.messages is None for of_queue in batches.values() for batch in of_queue)
    assert sum(batch.count for of_queue in batches.values() for batch in of_queue) == 200_000
    restarted.close()
