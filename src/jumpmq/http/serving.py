"""uvicorn in the broker's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn


class Server(uvicorn.Server):
    """A uvicorn that leaves listening to the broker, and signals to the program it runs in.

    It wakes once a second, and ends as soon as its connections have: uvicorn looks ten times a second for both.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._exiting = asyncio.Event()  # set when it is to end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers: list[asyncio.base_events.Server] = []
        self.started = True
        self.ready.set()

    def exit(self) -> None:
        """Begin to end: `serve` returns when all connections are closed."""
        self.should_exit = True
        self._exiting.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # 0: each time, the header with the date is written
            with suppress(TimeoutError):
                await asyncio.wait_for(self._exiting.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.005)
        except TimeoutError:
            for task in state.tasks:
                task.cancel()

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(self.config, self.server_state, self.lifespan.state)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
