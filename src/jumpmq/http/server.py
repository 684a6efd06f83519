"""The management port: uvicorn in the broker's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from jumpmq.broker import Broker, BrokerError
from jumpmq.http.application import application
from jumpmq.http.protocol import KEEP_ALIVE, BoundedProtocol
from jumpmq.http.rates import Rates


class HTTPServer:
    """Serves the management API of a started broker.

    Args:
        port: 0 picks a free one; ``self.port`` tells which after :meth:`start`.
        stop_broker: begins to stop the broker; None if that is not for its users to ask.
    """

    def __init__(self, broker: Broker, host: str, port: int, stop_broker: Callable[[], None] | None = None) -> None:
        self.host = host
        self.port = port
        self._rates = Rates(broker)
        self._server = _Server(
            uvicorn.Config(
                application(broker, self._rates, stop_broker),
                log_config=None,
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                ws="none",
                server_header=False,
                http=BoundedProtocol,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            BrokerError: the address cannot be listened on.
        """
        listening = _listen(self.host, self.port)
        self.port = listening.getsockname()[1]
        self._rates.start()
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="http")
        await self._server.listening.wait()

    async def stop(self) -> None:
        """Close all connections, also those in the middle of an answer, within some two seconds."""
        await self._rates.stop()
        if self._task is not None:
            self._server.should_exit = True
            await self._task


class _Server(uvicorn.Server):
    """A uvicorn that tells when it listens, and leaves signals to the program it runs in."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise BrokerError(f"cannot listen for HTTP on {host} port {port}: {error.strerror or error}") from None
