"""Accepted connections that wait until the module for the final protocol is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jumpmq.broker.connection.listeners import connection_limit

SHARE = 4
"""Divisor: the limit of waiting connections is the limit of AMQP connections divided by this number."""


class Arriving(asyncio.Protocol):
    """Holds a connection, after at most one read, until a task is done, then passes it to the final protocol.

    Args:
        awaited: the task; if the task fails, the connection is closed.
        protocol: factory of the final protocol.
        waiting: the waiting connections, in order of arrival; each adds and removes itself.
    """

    def __init__(
        self, awaited: asyncio.Future[None], protocol: Callable[[], asyncio.Protocol], waiting: list[Arriving]
    ) -> None:
        self._awaited = awaited
        self._protocol = protocol
        self._waiting = waiting
        self._transport: asyncio.Transport | None = None
        self._received = b""  # octets read while waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._awaited.add_done_callback(self._give)
        self._waiting.append(self)
        if len(self._waiting) > connection_limit() // SHARE:
            next((one for one in self._waiting if not one._received), self._waiting[0])._leave()

    def data_received(self, octets: bytes) -> None:
        assert self._transport is not None
        self._received += octets
        self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._awaited.remove_done_callback(self._give)
        if self in self._waiting:
            self._waiting.remove(self)

    def _leave(self) -> None:
        """Close the connection, to free a descriptor for new connections and for files."""
        self._waiting.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def _give(self, awaited: asyncio.Future[None]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if awaited.cancelled() or awaited.exception() is not None:
            transport.abort()
            return
        protocol = self._protocol()
        self._waiting.remove(self)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            transport.resume_reading()
            protocol.data_received(self._received)
