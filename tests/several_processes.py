"""A broker in several processes, as a program: `python -m tests.several_processes COUNT DATA_DIR NODE`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.several_nodes import SeveralNodes

import jumpmq
from jumpmq.testing import JumpMQ
from jumpmq.testing.ports import accepts_clients
from jumpmq.testing.processes import PATIENCE


class SeveralProcesses(JumpMQ):
    """JumpMQ with queues and clients spread over several processes."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def start(self) -> None:
        """See :meth:`JumpMQ.start`."""
        began = time.perf_counter()
        arguments = [str(self._count), str(self.data_dir), self.node]
        paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self._launch([sys.executable, "-m", "tests.several_processes", *arguments], environment)
        while not self._find_ports() or not accepts_clients(self.port):
            self._check_alive(began + PATIENCE)
            time.sleep(0.005)
        self.startup = time.perf_counter() - began


def running(workers: int = 1, nodes: int = 1) -> JumpMQ:
    """JumpMQ in the given number of processes, or nodes."""
    if nodes > 1:
        return SeveralNodes(nodes, workers)
    return JumpMQ() if workers == 1 else SeveralProcesses(workers)


def main(count: int, data_dir: Path, node: str) -> None:
    """Serve until a SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    settings: dict[str, Any] = {"queue_leader_locator": os.environ.get("JUMPMQ_QUEUE_LEADER_LOCATOR", "balanced")}
    with jumpmq.running(workers=count, data_dir=data_dir, node=node, **settings) as broker:
        print(f"amqp://localhost:{broker.port} http://localhost:{broker.http_port}", flush=True)
        ended.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
