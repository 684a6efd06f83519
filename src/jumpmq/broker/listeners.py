"""Where the broker listens: sockets, with TLS or without, on which certificates can be renewed.

A listener with TLS takes new certificates by listening anew on the same socket: who is connected stays so, and nobody
finds the port closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from jumpmq.broker.certificates import CertificateError, ServerTLS
from jumpmq.broker.errors import BrokerError

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that may wait to be accepted."""

TLS_TIMEOUT = 10.0
"""Seconds that a client has for the handshake of TLS."""

WATCH_INTERVAL = 5.0
"""Seconds between looks at the files of certificates."""

RESERVED_FILES = 32
"""Files that the process needs for itself: the store's, the log's, the event loop's."""

SHARE_OF_FILES = 0.75
"""Of the files that the process may open, what clients of AMQP may take beside those that are reserved."""


def connection_limit() -> int:
    """How many AMQP connections there may be at once."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, int(files * SHARE_OF_FILES) - RESERVED_FILES)


class Refused(asyncio.Protocol):
    """A connection that there is no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        log.warning("a connection is refused: there are as many as files may be open for")
        transport.abort()  # type: ignore[attr-defined]


@dataclass
class Listener:
    """One socket that is listened on.

    Attributes:
        protocol: as the management API names it: ``amqp``, ``amqp/ssl``, ``http``, ``https``.
        port: 0 picks a free one; which it is, once it listens.
        accept: makes the protocol of a new connection.
        tls: None where it speaks plainly.
    """

    protocol: str
    host: str
    port: int
    accept: Callable[[], asyncio.BaseProtocol]
    tls: ServerTLS | None = None
    _socket: socket.socket | None = field(default=None, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _versions: Any = field(default=None, init=False)

    async def start(self) -> None:
        """Listen.

        Raises:
            BrokerError: the address cannot be listened on, or TLS cannot be set up.
        """
        self._socket = _bind(self.host, self.port, self.protocol)
        self.port = self._socket.getsockname()[1]
        try:
            await self._serve()
        except CertificateError as error:
            self.close()
            raise BrokerError(str(error)) from None

    async def reload(self) -> None:
        """Use certificates from their files as they are now, for those who connect from now on.

        Raises:
            CertificateError: they cannot be used; those before stay in use.
        """
        if self.tls is not None and self._server is not None:
            before = self._server
            await self._serve()
            before.close()

    @property
    def is_outdated(self) -> bool:
        """Whether a file of its certificates was changed since it was read."""
        return self.tls is not None and self.tls.versions() != self._versions

    @property
    def is_suspended(self) -> bool:
        """Whether it does not listen, until :meth:`start`."""
        return self._server is None

    def close(self) -> None:
        """Listen no more; who is connected stays so."""
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        self._server = self._socket = None

    async def _serve(self) -> None:
        assert self._socket is not None
        encryption: dict[str, Any] = {}
        if self.tls is not None:
            self._versions = self.tls.versions()
            encryption = {"ssl": self.tls.context(), "ssl_handshake_timeout": TLS_TIMEOUT}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.accept, sock=self._socket.dup(), backlog=BACKLOG, **encryption)


class CertificateWatch:
    """Renews the certificates of listeners when their files change, or when told."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._watch: asyncio.Task[None] | None = None

    def add(self, listener: Listener) -> None:
        """Look after a listener from now on."""
        self._listeners.append(listener)
        if listener.tls is not None and self._watch is None:
            self._watch = asyncio.create_task(self._look(), name="certificates")

    async def stop(self) -> None:
        """Look no more."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    async def reload(self) -> None:
        """Read all certificates anew."""
        await self._renew(self._listeners)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            await self._renew([listener for listener in self._listeners if listener.is_outdated])

    async def _renew(self, listeners: Collection[Listener]) -> None:
        for listener in listeners:
            try:
                await listener.reload()
            except (CertificateError, OSError) as error:
                log.error("the certificates of port %s stay as they were: %s", listener.port, error)
            else:
                if listener.tls is not None:
                    log.info("new certificates on port %s", listener.port)


def _bind(host: str, port: int, protocol: str) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BrokerError(f"cannot listen for {protocol} on {host}:{port}: {reason}") from None
    except OverflowError:
        raise BrokerError(f"cannot listen for {protocol} on {host}:{port}: there is no such port") from None
