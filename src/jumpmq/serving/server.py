"""A broker with its management port, started and stopped together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from jumpmq.broker import Broker, Config
from jumpmq.broker.broker import start
from jumpmq.broker.commit.commits import OpenStore
from jumpmq.broker.peers import Enter, alone
from jumpmq.http.server import HTTPServer
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store import Store

#: The default user with password; may log in from loopback addresses only.
GUEST = "guest:guest"


@dataclass(frozen=True)
class RunningBroker:
    """Addresses of a started broker, and its data directory (`None`: in memory). A port is 0 without a listener."""

    node: str
    host: str
    port: int
    http_port: int
    data_dir: Path | None
    tls_port: int = 0
    https_port: int = 0
    tls_ca: Path | None = None

    @property
    def amqp_url(self) -> str:
        """URL for AMQP clients, with user and password."""
        return f"amqp://{GUEST}@{self._address(self.port)}/%2F"

    @property
    def amqps_url(self) -> str:
        """The AMQP URL with TLS; `tls_ca` is the CA of the broker's certificate."""
        return f"amqps://{GUEST}@{self._address(self.tls_port)}/%2F"

    @property
    def http_url(self) -> str:
        """URL for `jumpmqctl --url` and Spark's option `url`, with user and password."""
        return f"http://{GUEST}@{self._address(self.http_port)}"

    @property
    def https_url(self) -> str:
        """The HTTP URL with TLS; `tls_ca` is the CA of the broker's certificate."""
        return f"https://{GUEST}@{self._address(self.https_port)}"

    def ready_line(self) -> str:
        """Return the line that `jumpmq serve` prints when ready: node, addresses, data directory."""
        ports = {"amqp": self.port, "amqps": self.tls_port, "http": self.http_port, "https": self.https_port}
        places = [f"{scheme}://{self._address(port)}" for scheme, port in ports.items() if port]
        where = f"at {' and '.join(places)}" if places else "nowhere"
        return f"JumpMQ {self.node} is ready {where}, data in {self.data_dir or 'memory'}"

    def _address(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{port}"


@dataclass(frozen=True)
class Control:
    """Operations on a serving broker from within its process."""

    endpoints: RunningBroker
    broker: Broker
    memory: MemoryAccount
    reload_certificates: Callable[[], Awaitable[None]]


@asynccontextmanager
async def managed_alone(broker: Broker, stop: Callable[[], None] | None) -> AsyncIterator[None]:
    """Serve the management port of a broker of one process until the block ends. See :data:`Manage`."""
    http = HTTPServer(broker, stop)
    try:
        await http.start()
        yield
    finally:
        await http.stop()


Manage = Callable[[Broker, Callable[[], None] | None], AbstractAsyncContextManager[None]]
"""Serves the management port of a started broker. The second argument stops the broker, for an administrator's
request.
"""


@asynccontextmanager
async def serving(
    config: Config,
    stop: Callable[[], None] | None = None,
    fail: Callable[[str], None] = lambda reason: None,
    enter: Enter = alone,
    manage: Manage = managed_alone,
    open_store: OpenStore = Store.open,
) -> AsyncIterator[Control]:
    """Serve AMQP and HTTP in the running event loop until the block ends.

    Args:
        stop: makes the caller leave the block; called for an administrator's request over HTTP. None to refuse such
            requests.
        fail: called with a sentence when the broker cannot continue: the process must end at once, and be restarted.
            The sentence is already in the log.
        enter: makes the broker's peers.
        manage: serves the management port.
        open_store: opens the store of the data directory.

    Raises:
        BrokerError: the broker cannot start; the text is one line with the reason.
    """
    before = None
    if config.load_definitions is not None and config.worker == 1:
        from jumpmq.serving.load_definitions import loading  # imports modules of HTTP, which other brokers do without

        before = loading(config.load_definitions)
    broker = await start(config, enter, on_failure=fail, before_listening=before, open_store=open_store)
    try:
        async with manage(broker, stop):
            yield Control(_endpoints(broker), broker, broker.memory, broker.listening.certificates.reload)
            broker.close_clients()  # at the same time as the last requests end
    finally:
        await broker.stop()


def _endpoints(broker: Broker) -> RunningBroker:
    host = broker.config.host
    return RunningBroker(
        broker.node,
        "127.0.0.1" if host == "localhost" else host,  # clients may resolve localhost differently
        broker.port,
        broker.listening.port_of("http"),
        broker.config.data_dir,
        broker.listening.port_of("amqp/ssl"),
        broker.listening.port_of("https"),
        broker.config.tls_ca,
    )
