"""HTTP connections that do not wait for ever, and of which there are only so many."""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT = 20.0
"""Seconds from the opening of a connection, and from the first octet of each further request, to its head's end."""

KEEP_ALIVE = 75
"""Seconds that a connection may be silent between two requests."""

MAX_CONNECTIONS = 1000
SHARE_OF_FILES = 0.25
"""Of the files that the process may open, what HTTP connections may take: clients of AMQP and the store need theirs."""


def connection_limit() -> int:
    """How many HTTP connections there may be at once."""
    return min(MAX_CONNECTIONS, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_OF_FILES))


class BoundedProtocol(H11Protocol):
    """A connection that is closed where its client does not come to ask, or where others need its place.

    Beyond :func:`connection_limit`, a new connection takes the place of the one that has been waiting for a request
    longest; where all are being answered, it is closed itself.
    """

    waiting_since = 0.0
    """When the wait for the head of a request began, by the loop's clock; 0 while one is answered."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > connection_limit():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waiting_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watch()
            self.waiting_since = 0.0
        elif self._deadline is None:
            self.waiting_since = self.loop.time()
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT, self.transport.abort)

    def _stop_watch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> None:
        found = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        waiting = [one for one in found if one.waiting_since]
        given_up = min(waiting, key=lambda one: one.waiting_since, default=self)
        given_up.transport.abort()
