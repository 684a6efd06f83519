"""Listening sockets, with or without TLS, with renewable certificates.

A listener accepts all waiting clients, for up to a time slice. The event loop's own server accepts one client per
iteration: with long iterations, each client would wait for all clients before it. With TLS, new certificates apply to
clients that connect later.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jumpmq.broker.connection.origin import ConnectionOrigin
from jumpmq.broker.connection.proxied import NoHeader, Proxies
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.security.certificates import CertificateError, ServerTLS, keeps_many_sessions
from jumpmq.broker.upkeep.slices import SLICE

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Maximum number of connections waiting to be accepted."""

TLS_TIMEOUT = 10.0
"""Timeout of the TLS handshake, in seconds."""

FULL_PAUSE = 1.0
"""Seconds until clients are accepted again after a failure, for example with too many open files."""

REFUSALS_INTERVAL = 10.0
"""Seconds between log lines about refused connections."""

RESERVED_FILES = 32
"""Number of files reserved for the process: the files of the store, the log and the event loop."""

ACCEPTED_AT_ONCE = RESERVED_FILES // 4
"""Maximum number of clients accepted per event-loop iteration: the limit of open files counts them only when they are
connected.
"""

LOCALHOST = "127.0.0.1", "::1"
"""Addresses of ``localhost``, independent of the machine's files: clients differ in the address that they try first."""

SHARE_OF_FILES = 0.75
"""Share of open files for AMQP clients, in addition to reserved ones."""


def connection_limit() -> int:
    """Return the maximum number of AMQP connections."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, int(files * SHARE_OF_FILES) - RESERVED_FILES)


class RefusedConnections:
    """Refused connections beyond the limit. The first is logged, then a summary at intervals."""

    def __init__(self) -> None:
        self._count = 0  # refusals since the last log line
        self._told_at = -REFUSALS_INTERVAL  # time of the last log line

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol for the next refused connection."""
        self._count += 1
        now = time.monotonic()
        if now - self._told_at >= REFUSALS_INTERVAL:
            log.warning("connections refused: %d; the limit of open files allows no more", self._count)
            self._count, self._told_at = 0, now
        return RefusedConnection()


class RefusedConnection(asyncio.Protocol):
    """Protocol of a refused connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.abort()  # type: ignore[attr-defined]


class Processes(Protocol):
    """Accepts clients instead of a listener."""

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from the given sockets, with the current certificates."""

    def close(self) -> None:
        """Accept no more."""


@dataclass
class Listener:
    """A listening port.

    Attributes:
        protocol: name in the management API: ``amqp``, ``amqp/ssl``, ``http``, ``https``.
        host: an address, or a name that stands for all its addresses.
        port: the port; for 0, the chosen free port while listening.
        accept: returns the protocol of a new connection. For a client of a trusted proxy, it takes the
            :class:`ConnectionOrigin` in the proxy's header.
        tls: TLS settings; None without TLS.
        processes: TLS processes; None if the broker's own process does TLS.
        admits: returns True if clients from an address are served; other clients are disconnected at once.
        proxies: balancers with trusted PROXY headers; None without any.
    """

    protocol: str
    host: str
    port: int
    accept: Callable[..., asyncio.BaseProtocol]
    tls: ServerTLS | None = None
    processes: Processes | None = None
    admits: Callable[[str], bool] = lambda address: True
    proxies: Proxies | None = None
    _sockets: list[socket.socket] = field(default_factory=list, init=False)
    _is_reading: bool = field(default=False, init=False)
    _joining: set[asyncio.Task[object]] = field(default_factory=set, init=False)
    _versions: Any = field(default=None, init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)

    async def start(self) -> None:
        """Listen.

        Raises:
            BrokerError: an address cannot be listened on, or TLS cannot be set up.
        """
        self._sockets = _bound(self.protocol, self.host, self.port)
        self.port = self._sockets[0].getsockname()[1]
        try:
            await self._serve()
        except CertificateError as error:
            self.close()
            raise BrokerError(str(error)) from None
        except OSError as error:
            self.close()
            raise BrokerError(f"cannot serve {self.protocol} on port {self.port}: {error.strerror}") from None

    async def reload(self) -> None:
        """Reload certificates from files, for new connections.

        Raises:
            CertificateError: the certificates are unusable; the previous ones stay in use.
        """
        if self.tls is not None and not self.is_suspended:
            await self._serve()

    @property
    def is_outdated(self) -> bool:
        """Return True if a certificate file changed since the last load."""
        return self.tls is not None and self.tls.versions() != self._versions

    @property
    def keeps_many_sessions(self) -> bool:
        """Return True if the context should be renewed because of memory held by TLS sessions."""
        return self._context is not None and keeps_many_sessions(self._context)

    @property
    def is_suspended(self) -> bool:
        """True if suspended, until :meth:`start`."""
        return not self._sockets

    def close(self) -> None:
        """Stop listening; open connections stay."""
        if self.processes is not None:
            self.processes.close()
        self._read(False)
        for listening in self._sockets:
            listening.close()
        self._sockets = []

    @property
    def addresses(self) -> list[str]:
        """Addresses of the listener."""
        return [listening.getsockname()[0] for listening in self._sockets]

    async def _serve(self) -> None:
        if self.tls is not None:
            self._versions = self.tls.versions()
            context = self.tls.context()
            self._context = context if self.processes is None else None
        if self.processes is not None:
            await self.processes.listen(self._sockets)
            return
        for listening in self._sockets:
            listening.setblocking(False)
        self._read(True)

    def _read(self, wanted: bool) -> None:
        """Register or unregister the listening sockets in the event loop."""
        if wanted is self._is_reading:
            return
        self._is_reading, loop = wanted, asyncio.get_running_loop()
        for listening in self._sockets:
            if wanted:
                loop.add_reader(listening, self._accept_some, listening)
            else:
                loop.remove_reader(listening)

    def _accept_some(self, listening: socket.socket) -> None:
        """Accept waiting clients for a time slice."""
        until = time.perf_counter() + SLICE
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.error("clients of port %d must wait: %s", self.port, error.strerror)
                # The waiting client keeps the socket readable: without a pause the event loop would accept in vain,
                # again and again.
                self._read(False)
                asyncio.get_running_loop().call_later(FULL_PAUSE, self._go_on)
                return
            if self.admits(address[0]):
                self.take(client)
            else:
                client.close()
            if time.perf_counter() > until:
                return

    def _go_on(self) -> None:
        self._read(bool(self._sockets))

    @property
    def joining(self) -> int:
        """Number of accepted clients in their handshake."""
        return len(self._joining)

    def take(self, client: socket.socket) -> None:
        """Serve an accepted client."""
        loop = asyncio.get_running_loop()
        client.setblocking(False)
        encryption = {} if self._context is None else {"ssl": self._context, "ssl_handshake_timeout": TLS_TIMEOUT}
        task: asyncio.Task[object]
        if self.proxies is None:
            task = loop.create_task(loop.connect_accepted_socket(self.accept, client, **encryption))  # type: ignore[arg-type]
        else:
            task = loop.create_task(self._take_from_proxy(client, self.proxies, encryption))
        # The event loop itself keeps only weak references to tasks.
        self._joining.add(task)
        task.add_done_callback(self._joined)

    async def _take_from_proxy(self, client: socket.socket, proxies: Proxies, encryption: dict[str, Any]) -> None:
        try:
            ends = await proxies.ends(client)
        # The socket has no transport yet, so a cancellation has to close it, too.
        except BaseException as error:
            client.close()
            if isinstance(error, NoHeader):
                log.warning("a connection at port %d was refused: %s", self.port, error)
                return
            raise
        # The transport has the TLS state only when the protocol is made.
        accept = self.accept if ends is None else lambda: self.accept(ConnectionOrigin(ends.peer, ends.server, None))
        await asyncio.get_running_loop().connect_accepted_socket(accept, client, **encryption)

    def _joined(self, task: asyncio.Task[object]) -> None:
        self._joining.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved to silence it: a client that is gone, or without TLS, is not an error


class CertificateWatch:
    """Renews the certificates of listeners when their files change, or on request.

    Args:
        interval: seconds between two checks of the files.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._listeners: list[Listener] = []
        self._watch: asyncio.Task[None] | None = None

    def add(self, listener: Listener) -> None:
        """Add a listener."""
        self._listeners.append(listener)
        if listener.tls is not None and self._watch is None:
            self._watch = asyncio.create_task(self._look(), name="certificates")

    async def stop(self) -> None:
        """Stop the checks."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    async def reload(self) -> None:
        """Read all certificates again."""
        await self._renew(self._listeners)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._renew([listener for listener in self._listeners if listener.is_outdated])
            for listener in self._listeners:
                if listener.keeps_many_sessions:
                    with contextlib.suppress(CertificateError, OSError):  # reported when the files changed
                        await listener.reload()

    async def _renew(self, listeners: Collection[Listener]) -> None:
        for listener in listeners:
            try:
                await listener.reload()
            except (CertificateError, OSError) as error:
                log.error("the certificates of port %s stay as they were: %s", listener.port, error)
            else:
                if listener.tls is not None:
                    log.info("new certificates on port %s", listener.port)


def bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets listening on all addresses of a host, on one port, except addresses missing on this machine, such
    as ``::1`` without IPv6."""
    families: dict[tuple[Any, ...], socket.AddressFamily] = {}
    for name in LOCALHOST if host == "localhost" else (host,):
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        families |= {address[:2]: family for family, _, _, _, address in found}
    bound: list[socket.socket] = []
    for (address, _), family in families.items():
        # All addresses share one port, also a port chosen for the first address.
        place = address, bound[0].getsockname()[1] if bound else port
        dual = family is socket.AF_INET6 and address == "::" and len(families) == 1 and socket.has_dualstack_ipv6()
        try:
            bound.append(socket.create_server(place, family=family, backlog=BACKLOG, dualstack_ipv6=dual))
        except OSError as error:
            if bound and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            for listening in bound:
                listening.close()
            if bound and not port and error.errno == errno.EADDRINUSE:  # it was free on the first address only
                return bind(host, port)
            raise
    return bound


def require_free(host: str, ports: Mapping[str, int | None]) -> None:
    """Test ports before the broker listens on them.

    Args:
        ports: ports by protocol; None for a closed port.

    Raises:
        BrokerError: an address cannot be listened on.
    """
    for protocol, port in ports.items():
        for one in _bound(protocol, host, port) if port else ():
            one.close()


def _bound(protocol: str, host: str, port: int) -> list[socket.socket]:
    try:
        return bind(host, port)
    except (OSError, OverflowError) as error:
        reason = "there is no such port" if isinstance(error, OverflowError) else error.strerror or str(error)
        raise BrokerError(f"cannot listen for {protocol} on {host}:{port}: {reason}") from None
