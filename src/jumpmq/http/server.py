"""The management port. Most of its code is loaded with the first client."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from jumpmq.broker import Broker
from jumpmq.broker.connection.listeners import Listener
from jumpmq.http.arriving import Arriving
from jumpmq.http.observed import Observed
from jumpmq.http.plumbing.forwarding import LOCAL, Forwarder

if TYPE_CHECKING:
    from jumpmq.http.serving import Server

log = logging.getLogger(__name__)

SERVING = "jumpmq.http.serving"
"""Module for answering requests, loaded with the first client: with its libraries, the module takes 12 MB, a fifth of
an idle broker's memory.
"""


class HTTPServer:
    """Serves the management API of a started broker, with TLS too if the broker has a certificate.

    Args:
        stop_broker: begins to stop the broker; None if users may not request the stop.
        forwarder: forwards requests to the other homes of the broker.
        node_forwarder: forwards requests to the other homes of this node only.
    """

    def __init__(
        self,
        broker: Broker,
        stop_broker: Callable[[], None] | None = None,
        forwarder: Forwarder = LOCAL,
        node_forwarder: Forwarder = LOCAL,
    ) -> None:
        self._broker = broker
        self._stop_broker = stop_broker
        self._forwarders = forwarder, node_forwarder
        self._observed = Observed(broker)
        self._server: Server | None = None  # None until loaded
        self._loading: asyncio.Task[None] | None = None  # loads the module; None before the first client
        self._arriving: list[Arriving] = []  # clients waiting for the module
        self._task: asyncio.Task[None] | None = None  # runs _server

    async def start(self) -> None:
        """Open the listeners.

        Raises:
            BrokerError: the process cannot listen on an address.
        """
        self._observed.start()
        config, listening = self._broker.config, self._broker.listening
        if config.http_port is not None:
            await listening.listen(Listener("http", config.host, config.http_port, self._accept, admits=self._admits))
        if config.tls is not None and config.https_port is not None:
            https = Listener("https", config.host, config.https_port, self._accept, config.tls, admits=self._admits)
            await listening.listen(https)

    async def stop(self) -> None:
        """Close all connections, including connections in the middle of an answer, within some two seconds."""
        await self._observed.stop()
        if self._loading is not None:
            await self._loading
        if self._server is not None and self._task is not None:
            self._server.exit()
            await self._task

    def _admits(self, address: str) -> bool:
        """Return True if a new connection from an address is accepted; see :class:`jumpmq.http.places.Places`."""
        return self._server is None or self._server.admits(address)

    def _accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        if self._server is not None:
            return self._server.accept()
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="loading http")
        return Arriving(self._loading, self._accept, self._arriving)

    async def _load(self) -> None:
        """Load the serving module in a thread."""
        try:
            serving = await asyncio.to_thread(importlib.import_module, SERVING)
            server: Server = serving.server(self._broker, self._observed, self._stop_broker, *self._forwarders)
            self._task = asyncio.create_task(server.serve(), name="http")
            await server.ready.wait()
            self._server = server
        except Exception:
            log.exception("the management port cannot answer")
            self._loading = None  # the next client begins another attempt
            raise
