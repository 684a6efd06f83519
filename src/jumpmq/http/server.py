"""The management port: uvicorn in the broker's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import uvicorn

from jumpmq.broker import Broker
from jumpmq.broker.connection.listeners import Listener
from jumpmq.http.application import application
from jumpmq.http.history import History
from jumpmq.http.protocol import KEEP_ALIVE, BoundedProtocol
from jumpmq.http.rates import Rates
from jumpmq.http.recent_log import RecentLog
from jumpmq.http.serving import Server

if TYPE_CHECKING:
    from jumpmq.http.homes.passing import Elsewhere


class HTTPServer:
    """Serves the management API of a started broker, with TLS too where the broker has a certificate.

    Args:
        stop_broker: begins to stop the broker; None if that is not for its users to ask.
        elsewhere: the broker's other homes; None if it has one.
    """

    def __init__(
        self, broker: Broker, stop_broker: Callable[[], None] | None = None, elsewhere: Elsewhere | None = None
    ) -> None:
        self._broker = broker  # what is managed
        self._rates = Rates(broker)  # of the counters that are shown
        self._recent_log = RecentLog()  # the last lines
        self._server = Server(
            uvicorn.Config(
                application(
                    broker, self._rates, History(broker, self._rates), self._recent_log, stop_broker, elsewhere
                ),
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
        self._task: asyncio.Task[None] | None = None  # serves

    async def start(self) -> None:
        """Listen.

        Raises:
            BrokerError: an address cannot be listened on.
        """
        async with anyio.create_task_group():
            pass  # what the first list would otherwise load while others wait for it
        self._task = asyncio.create_task(self._server.serve(), name="http")
        await self._server.ready.wait()
        self._rates.start()
        self._recent_log.start()
        config = self._broker.config
        if config.http_port is not None:
            await self._broker.listen(Listener("http", config.host, config.http_port, self._server.accept))
        if config.tls is not None and config.https_port is not None:
            listener = Listener("https", config.host, config.https_port, self._server.accept, config.tls)
            await self._broker.listen(listener)

    async def stop(self) -> None:
        """Close all connections, also those in the middle of an answer, within some two seconds."""
        self._recent_log.stop()
        await self._rates.stop()
        if self._task is not None:
            self._server.exit()
            await self._task
