"""The management of a broker with several homes: each answers the others, and the first answers clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from jumpmq.broker import Broker
from jumpmq.broker.figures.merged import MergedFigures
from jumpmq.http.homes.asking import AskedHome
from jumpmq.http.homes.directory import HomesDirectory
from jumpmq.http.homes.listener import PrivateListener
from jumpmq.http.homes.passing import Elsewhere
from jumpmq.http.server import HTTPServer

FRONT = 1
"""The home that answers clients."""


@asynccontextmanager
async def managed(
    broker: Broker, directory: HomesDirectory, stop_broker: Callable[[], None] | None = None
) -> AsyncIterator[None]:
    """Serves the management of a started broker that is one home of several, until the block is left.

    Raises:
        BrokerError: an address cannot be listened on.
    """
    listener = PrivateListener(broker, directory)
    await listener.start()
    try:
        if directory.home != FRONT:
            yield
            return
        clients = list(directory.clients())
        broker.figures = MergedFigures(broker.home_figures, [AskedHome(client) for client in clients])
        server = HTTPServer(broker, stop_broker, Elsewhere(directory.home, clients))
        try:
            await server.start()
            yield
        finally:
            await server.stop()
            for client in clients:
                client.close()
    finally:
        await listener.stop()
