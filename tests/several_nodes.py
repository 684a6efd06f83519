"""A cluster of nodes as a single broker: clients are at the first node, and most queues at other nodes."""

from contextlib import ExitStack
from pathlib import Path

from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import etcd


class SeveralNodes(JumpMQ):
    """The first node of a cluster with an etcd; the other nodes end with it."""

    def __init__(self, count: int, workers: int = 1) -> None:
        super().__init__(node="one@localhost")
        self._count = count
        self._workers = workers
        self._others = ExitStack()

    def start(self) -> None:
        """See :meth:`JumpMQ.start`."""
        (member,) = self._others.enter_context(etcd(self.directory))
        self._arguments = options = [
            *("--cluster", "test", "--etcd", member.url, "--queue-leader-locator", "balanced"),
            *("--workers", str(self._workers)),
        ]
        super().start()
        for number in range(2, self._count + 1):
            self._others.enter_context(JumpMQ(Path(self.directory) / f"node-{number}", f"n{number}@localhost", options))

    def close(self) -> None:
        """See :meth:`JumpMQ.close`."""
        self._others.close()
        super().close()
