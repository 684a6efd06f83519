"""HTTP connections with timeouts, and a limit on their number."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from jumpmq.broker.connection.closed import CLOSED
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http.admission import Admission
from jumpmq.http.places import Places

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

KEEP_ALIVE = 75
"""Maximum idle time between two requests, in seconds."""

LEAST_RATE = 1000
"""Minimum rate at which a client must send a body, in octets per second, on average."""

MAX_CONNECTIONS = 1000
SHARE_OF_FILES = 0.25
"""Maximum share of open files for HTTP connections: AMQP clients and the store need the rest."""

KEPT_PLACES = ("/metrics", "/api/health", "/api/healthchecks", "/api/messages/", "/api/readers/")
"""Paths whose requests are not aborted for a new connection: metrics, checks, Spark."""

SHARE_KEPT = 0.5
"""Maximum share of all connections that requests to :data:`KEPT_PLACES` of an address may keep. Beyond the share, these
requests are aborted like all others.
"""


LARGE = 64 << 10
"""Octets from which on a part of an answer is sent without a copy."""


class UnjoinedConnection(h11.Connection):
    """Writes large parts of answers to the transport as they are. h11 would join a part with its length in new memory.

    Attributes:
        transport: the connection's transport.
    """

    transport: asyncio.Transport

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Return the parts to write for an event, as :class:`h11.Connection`; none after a large part was written."""
        parts = super().send_with_data_passthrough(event)
        if not (parts and isinstance(event, h11.Data) and len(event.data) >= LARGE):
            return parts
        for part in parts:
            self.transport.write(part)
        return []


class Door:
    """State common to the HTTP connections of an event loop.

    Attributes:
        places: the connections' slots.
        admission: decides which connection's request begins.
    """

    def __init__(self) -> None:
        self.places = Places[BoundedProtocol]()
        self.admission = Admission()

    def admits(self, address: str) -> bool:
        """Return True if a new connection of an address is admitted; see :meth:`Places.admits`."""
        return self.places.admits(address, connection_limit())


_doors: WeakKeyDictionary[asyncio.AbstractEventLoop, Door] = WeakKeyDictionary()


def door(loop: asyncio.AbstractEventLoop) -> Door:
    """Return the state of an event loop."""
    return _doors.setdefault(loop, Door())


def connection_limit() -> int:
    """Return the maximum number of HTTP connections."""
    return min(MAX_CONNECTIONS, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_OF_FILES))


class BoundedProtocol(H11Protocol):
    """A connection with timeouts. The connection is closed if the client sends no request, sends a body too slowly, or
    reads an answer too slowly, and if the slot is needed for a new connection.

    Beyond :func:`connection_limit`, a new connection replaces a connection of the address with most connections. The
    connection that has waited longest for a request is closed. If none waits, the user with most requests at the
    address loses the request that has been without progress for longest. If the new connection's own address has most
    connections, and all of them make progress, the new connection is closed.

    A request begins when admitted (:mod:`~jumpmq.http.admission`), and not before the client has read most of the
    previous answer.

    Args:
        timing: time limits of the client.
    """

    waiting_since = 0.0
    """Begin of the wait for the head of a request, by the loop's clock; 0 while a request is answered."""

    progress_at = 0.0
    """Time of the last octets received of a request or read of an answer, by the loop's clock."""

    _deadline: asyncio.TimerHandle | None = None
    _look_timer: asyncio.TimerHandle | None = None
    _body_since = 0.0  # end of the current request's head, by the loop's clock
    _received = 0  # octets received since _body_since
    _asks = False  # True if received data waits for admission
    _answered = False  # True if a request was answered
    _unread = 0  # octets of answers not read by the client at the last check

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], timing: BrokerTiming
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.conn = self._unjoined = UnjoinedConnection(h11.SERVER)
        self._timing = timing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unjoined.transport = self.transport
        self.progress_at = self.loop.time()
        self._watch()
        self._door.places.enter(self, self._address)
        if len(self._door.places) > connection_limit():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self.progress_at = self.loop.time()
        self._received += len(data)
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Continue the current request; further received data waits."""
        if self.cycle is not None and not self.cycle.response_complete:
            super().handle_events()
        elif not self._asks and self.conn.trailing_data[0]:
            self._asks = True
            self.flow.pause_reading()
            self._ask()

    def _ask(self) -> None:
        """Begin the request, unless the client has to read first; :meth:`resume_writing` calls again then."""
        if not self.flow.write_paused:
            self._door.admission.ask(self, self._address, is_new=not self._answered)

    def begin(self) -> bool:
        """See :class:`~jumpmq.http.admission.Asking`."""
        if not self._asks or self.transport.is_closing():
            return False
        cycle, self._asks = self.cycle, False
        self.flow.resume_reading()
        super().handle_events()
        if self.cycle is not cycle:
            self._body_since, self._received = self.loop.time(), 0
        self._watch()
        return True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._asks:
            self._ask()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered = True
        if self.cycle.response_complete:
            self.waiting_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        self._door.places.leave(self, self._address)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # after a reset, uvicorn's timer would keep the connection in memory
        self.transport = CLOSED

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watch()
            self.waiting_since = 0.0
            if self._look_timer is None:
                self._look_timer = self.loop.call_later(self._timing.http_look, self._look)
        elif self._deadline is None:
            self.waiting_since = self.loop.time()
            self._deadline = self.loop.call_later(self._timing.http_head, self.transport.abort)

    def _stop_watch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look(self) -> None:
        """Check the rates of sending and reading, until the answer has been read."""
        self._look_timer = None
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread < self._unread:
            self.progress_at = now
        self._unread = unread
        answering = self.cycle is not None and not self.cycle.response_complete
        wanted = LEAST_RATE * (now - self._body_since - self._timing.http_grace)
        trickles = answering and self.cycle.more_body and not self.flow.read_paused and self._received < wanted
        if trickles or (unread and now - self.progress_at > self._timing.http_stalled):
            self.transport.abort()
        elif answering or unread:
            self._look_timer = self.loop.call_later(self._timing.http_look, self._look)

    @property
    def _door(self) -> Door:
        return door(self.loop)

    @property
    def _is_kept(self) -> bool:
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering and self.cycle.scope["path"].startswith(KEPT_PLACES)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _user(self) -> object:
        """The authenticated user; None before authentication."""
        return self.cycle.scope.get("user") if self.cycle is not None else None

    def _make_room(self) -> None:
        places = self._door.places
        from_most = [one for one in places.of_most() if one is not self]
        waiting = [one for one in from_most if one.waiting_since]
        given_up: BoundedProtocol = self
        if waiting:
            given_up = min(waiting, key=lambda one: one.waiting_since)
        elif slow := self._slow_of(from_most):
            users = Counter(one._user for one in slow)
            given_up = min(slow, key=lambda one: (-users[one._user], one.progress_at))
        places.leave(given_up, given_up._address)  # at once: new connections may come before this one is closed
        given_up.transport.abort()

    def _slow_of(self, found: list[BoundedProtocol]) -> list[BoundedProtocol]:
        """Return an address's connections that may be closed in spite of progress."""
        is_own = bool(found) and found[0]._address == self._address
        before = self.loop.time() - (self._timing.http_look if is_own else 0.0)
        slow = [one for one in found if one.progress_at <= before]
        kept = [one for one in slow if one._is_kept]
        return slow if len(kept) > connection_limit() * SHARE_KEPT else [one for one in slow if not one._is_kept]
