"""A connection that waits for what is to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Arriving(asyncio.Protocol):
    """Has its connection wait, read once at most, until something is done, and gives it to another protocol then.

    Args:
        awaited: what is waited for; where that fails, the connection is closed.
        protocol: makes the other one.
    """

    def __init__(self, awaited: asyncio.Future[None], protocol: Callable[[], asyncio.Protocol]) -> None:
        self._awaited = awaited
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._received = b""  # what was read meanwhile

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._awaited.add_done_callback(self._give)

    def data_received(self, octets: bytes) -> None:
        assert self._transport is not None
        self._received += octets
        self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._awaited.remove_done_callback(self._give)

    def _give(self, awaited: asyncio.Future[None]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if awaited.cancelled() or awaited.exception() is not None:
            transport.abort()
            return
        protocol = self._protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            transport.resume_reading()
            protocol.data_received(self._received)
