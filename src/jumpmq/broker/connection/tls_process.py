"""A process that does TLS for a broker: ``python -m jumpmq.broker.connection.tls_process DESCRIPTOR SETTINGS``.

`DESCRIPTOR` is one end of a pair of sockets shared with the broker, and `SETTINGS` has the files of :class:`ServerTLS`
as JSON. The broker accepts clients, and sends their sockets: for each client an octet ``c`` with a descriptor. The
octet ``r`` makes the process reload the certificates. After a TLS handshake, the process makes a pair of sockets,
writes the origin of the client to one end, passes the other end to the broker (``c`` and a descriptor), and relays data
in both directions. The octet ``e`` notifies the broker that a client is gone.

The process ends when the broker closes its end, after the broker's data has reached the clients. Of all signals only
SIGKILL ends the process: a terminal or systemd sends signals to all processes, and the broker has to close connections
cleanly first.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

import uvloop

from jumpmq.broker.connection.listeners import TLS_TIMEOUT
from jumpmq.broker.connection.origin import ConnectionOrigin
from jumpmq.broker.connection.proxied import Ends, NoHeader, Proxies, trusted
from jumpmq.broker.security.certificates import CertificateError, ServerTLS, keeps_many_sessions

CLIENT, ENDED, RELOAD = b"c", b"e", b"r"
AT_ONCE = 64
"""Maximum number of messages read together from the other process."""
HELD = 1 << 20
"""Octets waiting for a slow end at which reading from the opposite end stops."""
LAST_WORDS = 1.0
"""Seconds for clients to read the broker's last data after the end of the broker."""


class _End(asyncio.Protocol):
    """One end of a relayed connection; received data is written to the opposite end."""

    other: _End | None = None
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HELD)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            other.transport.close()  # closes after all data is written


class _Client(_End):
    def __init__(self, process: Process, ends: Ends | None) -> None:
        self._process = process
        self._ends = ends  # addresses in a proxy's header

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # There is no connection to the broker yet to relay to.
        self.transport.pause_reading()
        try:
            origin = ConnectionOrigin.of(transport)
            near = self._process.announce(origin if self._ends is None else self._ends.of(origin))
        except OSError:  # too many open files, or the broker is gone
            self.transport.abort()
        else:
            self._process.soon(self._join(near))

    async def _join(self, near: socket.socket) -> None:
        _, broker = await asyncio.get_running_loop().create_connection(_End, sock=near)
        if self.transport.is_closing() or broker.transport.is_closing():  # the client is gone, or refused
            self.transport.close()
            broker.transport.close()
        else:
            self.other, broker.other = broker, self
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._process.ended()


class Process:
    """The process.

    Args:
        broker: socket for passing sockets from and to the broker.
        tls: the files of certificates.
        proxies: trusted proxies; None without any.

    Raises:
        CertificateError: the certificates are unusable.
    """

    def __init__(self, broker: socket.socket, tls: ServerTLS, proxies: Proxies | None) -> None:
        self._proxies = proxies
        self._broker = broker  # the socket to the broker
        self._tls = tls
        self._context = tls.context()  # for new clients
        self._tasks: set[asyncio.Task[None]] = set()  # one task per client
        self._clients = 0  # number of open client sockets
        self._gone = asyncio.Event()  # set when the broker is gone
        self._alone = asyncio.Event()  # set when there are no clients

    async def serve(self) -> None:
        """Serve until the broker is gone."""
        asyncio.get_running_loop().add_reader(self._broker.fileno(), self._take)
        await self._gone.wait()
        if self._clients:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self._alone.wait()

    def announce(self, origin: ConnectionOrigin) -> socket.socket:
        """Pass a client's connection to the broker; return this process's end.

        Raises:
            OSError: too many open files, or the broker is gone.
        """
        near, far = socket.socketpair()
        with far:
            try:
                origin.send(near)
                socket.send_fds(self._broker, [CLIENT], [far.fileno()])
            except OSError:
                near.close()
                raise
        return near

    def ended(self) -> None:
        """Notify the broker that a client is gone."""
        self._clients -= 1
        if not self._clients:
            self._alone.set()
        with suppress(OSError):
            self._broker.send(ENDED)

    def soon(self, work: asyncio._CoroutineLike[None]) -> None:
        """Schedule a coroutine."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self) -> None:
        """Read messages from the broker."""
        try:
            octets, descriptors, _, _ = socket.recv_fds(self._broker, AT_ONCE, AT_ONCE)
        except OSError:
            octets, descriptors = b"", []
        if not octets:
            asyncio.get_running_loop().remove_reader(self._broker.fileno())
            self._gone.set()
        if RELOAD in octets or keeps_many_sessions(self._context):
            with suppress(CertificateError):  # the broker has logged the error; the previous certificates stay in use
                self._context = self._tls.context()
        self._clients += len(descriptors)
        self._alone.clear()
        for descriptor in descriptors:
            self.soon(self._accept(socket.socket(fileno=descriptor)))

    async def _accept(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        client: _Client | None = None
        ends: Ends | None = None

        def make() -> _Client:
            nonlocal client
            client = _Client(self, ends)
            return client

        try:
            ends = None if self._proxies is None else await self._proxies.ends(connection)
            await loop.connect_accepted_socket(make, connection, ssl=self._context, ssl_handshake_timeout=TLS_TIMEOUT)
        except (OSError, ssl.SSLError, NoHeader):  # no TLS, a wrong version, or closed
            if client is None or not hasattr(client, "transport"):
                self.ended()


def main() -> None:
    """Run the process."""
    # The process ends after the broker, so that clients get the last data, but signals reach both.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    files = {name: Path(settings[name]) if settings[name] else None for name in ("key", "ca")}
    tls = ServerTLS(Path(settings["certificate"]), **files, client=settings["client"])
    proxies = trusted(settings["proxies"])
    try:
        with socket.socket(fileno=descriptor) as broker:
            uvloop.run(_serve(broker, tls, proxies))
    except CertificateError as error:
        sys.exit(f"jumpmq: {error}")


async def _serve(broker: socket.socket, tls: ServerTLS, proxies: Proxies | None) -> None:
    await Process(broker, tls, proxies).serve()


if __name__ == "__main__":
    main()
