"""A broker with its management port, started and stopped together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from jumpmq.broker import Broker, Config
from jumpmq.http.server import HTTPServer

#: The only user so far, accepted from loopback addresses only.
GUEST = "guest:guest"


@dataclass(frozen=True)
class RunningBroker:
    """Where a started broker listens, and where it keeps its messages (`None`: nowhere)."""

    node: str
    host: str
    port: int
    http_port: int
    data_dir: Path | None

    @property
    def amqp_url(self) -> str:
        """For AMQP clients, with user and password."""
        return f"amqp://{GUEST}@{self._address(self.port)}/%2F"

    @property
    def http_url(self) -> str:
        """For `jumpmqctl --url` and Spark's option `url`, with user and password."""
        return f"http://{GUEST}@{self._address(self.http_port)}"

    def ready_line(self) -> str:
        """The one line that `jumpmq serve` prints: who is ready, and where."""
        amqp, http = self._address(self.port), self._address(self.http_port)
        return f"JumpMQ {self.node} is ready at amqp://{amqp} and http://{http}, data in {self.data_dir or 'memory'}"

    def _address(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{port}"


@asynccontextmanager
async def serving(config: Config, stop: Callable[[], None] | None = None) -> AsyncIterator[RunningBroker]:
    """Serves AMQP and HTTP in the running event loop until the block is left.

    Args:
        stop: makes the caller leave the block; called when an administrator asks over HTTP, who is refused without it.

    Raises:
        BrokerError: the broker cannot start; its text is one line that says why.
    """
    broker = Broker(config)
    await broker.start()
    try:
        http = HTTPServer(broker, config.host, config.http_port, stop)
        await http.start()
        try:
            yield RunningBroker(broker.node, config.host, broker.port, http.port, config.data_dir)
        finally:
            await http.stop()
    finally:
        await broker.stop()
