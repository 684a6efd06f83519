"""A broker of one process imports nothing about several processes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_checkout_without_nodes_passes_its_tests() -> None:
    script = [str(ROOT / "scripts/one-process"), "tests/conformance/test_queues.py", "tests/http/test_lists.py"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_broker_of_one_process_loads_nothing_of_nodes() -> None:
    program = (
        "import sys, jumpmq\n"
        "with jumpmq.running() as broker:\n"
        "    print(*(name for name in sys.modules if name.startswith('jumpmq.nodes')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == ""
