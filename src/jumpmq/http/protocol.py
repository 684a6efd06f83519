"""HTTP connections that do not wait for ever, and of which there are only so many."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter

from uvicorn.protocols.http.h11_impl import H11Protocol

from jumpmq.broker.connection.closed import CLOSED

REQUEST_TIMEOUT = 20.0
"""Seconds from the opening of a connection, and from the first octet of each further request, to its head's end."""

KEEP_ALIVE = 75
"""Seconds that a connection may be silent between two requests."""

GRACE = 15.0
"""Seconds of a body, or of an answer, before the rate at which the client sends or reads it counts."""

LEAST_RATE = 1000
"""Octets a second that a client must send of a body, on average."""

STALLED = 30.0
"""Seconds within which a client must read some of an answer that waits for it."""

LOOK_INTERVAL = 1.0
"""Seconds between looks at a request under way."""

MAX_CONNECTIONS = 1000
SHARE_OF_FILES = 0.25
"""Of the files that the process may open, what HTTP connections may take: clients of AMQP and the store need theirs."""

KEPT_PLACES = ("/metrics", "/api/health", "/api/healthchecks", "/api/messages/", "/api/readers/")
"""Paths whose requests are not given up for a new connection: metrics, checks, Spark."""

SHARE_KEPT = 0.5
"""Of all connections, those that such requests of one address may hold; beyond, they are given up as others are."""


def connection_limit() -> int:
    """How many HTTP connections there may be at once."""
    return min(MAX_CONNECTIONS, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_OF_FILES))


class BoundedProtocol(H11Protocol):
    """A connection that is closed where its client does not come to ask, sends a body or reads an answer too slowly, or
    where others need its place.

    Beyond :func:`connection_limit`, a new connection takes the place of one from the address that has most: of the one
    that has been waiting for a request longest; else, of the requests of the user who has most there, of the one that
    has made no progress for longest. Where its own address has most, and all of those make progress, the new one is
    closed itself.
    """

    waiting_since = 0.0
    """When the wait for the head of a request began, by the loop's clock; 0 while one is answered."""

    progress_at = 0.0
    """When something of a request was last received, or of its answer read, by the loop's clock."""

    _deadline: asyncio.TimerHandle | None = None
    _look_timer: asyncio.TimerHandle | None = None
    _body_since = 0.0  # when the head of the request under way was complete
    _received = 0  # octets since then
    _unread = 0  # octets of answers that waited for the client at the last look

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.progress_at = self.loop.time()
        self._watch()
        if len(self.connections) > connection_limit():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        self.progress_at = self.loop.time()
        super().data_received(data)
        if self.cycle is cycle:
            self._received += len(data)
        else:
            self._body_since, self._received = self.loop.time(), 0
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waiting_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves the timer, which keeps the connection, after a reset
        self.transport = CLOSED

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watch()
            self.waiting_since = 0.0
            if self._look_timer is None:
                self._look_timer = self.loop.call_later(LOOK_INTERVAL, self._look)
        elif self._deadline is None:
            self.waiting_since = self.loop.time()
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT, self.transport.abort)

    def _stop_watch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look(self) -> None:
        """Whether the client sends and reads fast enough; until the request is answered and the answer is read."""
        self._look_timer = None
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread < self._unread:
            self.progress_at = now
        self._unread = unread
        answering = self.cycle is not None and not self.cycle.response_complete
        wanted = LEAST_RATE * (now - self._body_since - GRACE)
        trickles = answering and self.cycle.more_body and not self.flow.read_paused and self._received < wanted
        if trickles or (unread and now - self.progress_at > STALLED):
            self.transport.abort()
        elif answering or unread:
            self._look_timer = self.loop.call_later(LOOK_INTERVAL, self._look)

    @property
    def _is_kept(self) -> bool:
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering and self.cycle.scope["path"].startswith(KEPT_PLACES)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _user(self) -> object:
        """Who asks, once that is known; None before."""
        return self.cycle.scope.get("user") if self.cycle is not None else None

    def _make_room(self) -> None:
        found = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        addresses = Counter(one._address for one in found)
        most = max(addresses.values(), default=0)
        from_most = [one for one in found if addresses[one._address] == most]
        waiting = [one for one in from_most if one.waiting_since]
        before = self.loop.time() - (LOOK_INTERVAL if addresses[self._address] == most else 0.0)
        slow = [one for one in from_most if one.progress_at <= before]
        kept = [one for one in slow if one._is_kept]
        if len(kept) <= connection_limit() * SHARE_KEPT:
            slow = [one for one in slow if not one._is_kept]
        given_up: BoundedProtocol = self
        if waiting:
            given_up = min(waiting, key=lambda one: one.waiting_since)
        elif slow:
            users = Counter(one._user for one in slow)
            given_up = min(slow, key=lambda one: (-users[one._user], one.progress_at))
        given_up.transport.abort()
