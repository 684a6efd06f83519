"""TLS processes for AMQP clients, which relieve the broker's process.

The broker accepts each client, and passes the socket to the process with the fewest clients. After the handshake the
process passes back a socket with the decrypted data, preceded by the client's origin (:mod:`origin`). A process that
ends is started again, after longer pauses if it ends soon after each start. Its clients are disconnected. New clients
meanwhile go to the other processes, or wait for their acceptance.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from jumpmq._child_processes import SHORT_LIFE, ended, pause_after, start_again, start_child
from jumpmq.broker.connection.listeners import FULL_PAUSE
from jumpmq.broker.connection.origin import ConnectionOrigin
from jumpmq.broker.connection.tls_process import AT_ONCE, CLIENT, ENDED, LAST_WORDS, RELOAD
from jumpmq.broker.security.certificates import ServerTLS

log = logging.getLogger(__name__)

MODULE = "jumpmq.broker.connection.tls_process"
"""Module run by the processes."""

Accept = Callable[[ConnectionOrigin], asyncio.BaseProtocol]
"""Returns the protocol of a new client."""


class TLSProcesses:
    """The TLS processes of a broker.

    Args:
        count: number of processes, at least one.
        tls: the files of certificates.
        accept: returns the protocol of a new client, after its TLS handshake in one of the processes.
    """

    def __init__(self, count: int, tls: ServerTLS, accept: Accept, proxies: str | None = None) -> None:
        self._accept = accept
        self._sockets: Sequence[socket.socket] = ()  # listening sockets
        self._listening = False  # True if the event loop polls the listening sockets
        self._full = False  # True if too many files are open to accept clients
        self._processes = [_Process(self, tls, proxies) for _ in range(count)]

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept clients from these listening sockets, with the current certificates.

        Raises:
            OSError: a process cannot be started.
        """
        for listening in sockets:
            listening.setblocking(False)
        self._sockets = sockets
        for process in self._processes:
            if process.is_started:
                process.send(RELOAD)
            else:
                await process.start()
        self.look()

    def close(self) -> None:
        """Stop accepting clients; open connections stay."""
        if self._listening:
            for listening in self._sockets:
                asyncio.get_running_loop().remove_reader(listening)
        self._sockets, self._listening = (), False

    async def stop(self) -> None:
        """Stop the processes after all data is written to clients."""
        self.close()
        await asyncio.gather(*(process.stop() for process in self._processes))

    def look(self) -> None:
        """Poll the listening sockets only while a process can take clients."""
        able = not self._full and any(process.is_running for process in self._processes)
        if able is self._listening:
            return
        self._listening = able and bool(self._sockets)
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            if able:
                loop.add_reader(listening, self._take, listening)
            else:
                loop.remove_reader(listening)

    def join(self, connection: socket.socket) -> None:
        """Serve a client's decrypted connection after its TLS handshake."""
        connection.setblocking(False)
        try:
            origin = ConnectionOrigin.receive(connection)
        except (OSError, ValueError):  # the process has died
            connection.close()
            return
        joining = asyncio.get_running_loop().connect_accepted_socket(lambda: self._accept(origin), connection)
        task = asyncio.get_running_loop().create_task(joining)
        task.add_done_callback(_finished)

    def _take(self, listening: socket.socket) -> None:
        """Accept a client, and pass it to the process with the fewest."""
        try:
            client, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client is gone
            return
        except OSError as error:
            log.error("clients of port %d must wait: %s", listening.getsockname()[1], error.strerror)
            self._full = True
            asyncio.get_running_loop().call_later(FULL_PAUSE, self._go_on)
            self.look()
            return
        # The process gets a copy of the descriptor, so this one is closed.
        with client:
            for process in sorted(self._processes, key=lambda one: one.clients):
                if process.is_running and process.give(client):
                    return

    def _go_on(self) -> None:
        self._full = False
        self.look()


def _finished(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved to silence it: a client that is gone is not an error


class _Process:
    """A TLS process.

    Attributes:
        clients: number of clients.
    """

    def __init__(self, processes: TLSProcesses, tls: ServerTLS, proxies: str | None) -> None:
        self._processes = processes
        files = {"certificate": tls.certificate, "key": tls.key, "ca": tls.ca}
        settings = {name: path and str(path.absolute()) for name, path in files.items()}
        self._settings = json.dumps({**settings, "client": tls.client, "proxies": proxies})
        self._socket: socket.socket | None = None  # the broker's end of the pair of sockets
        self._child: subprocess.Popen[bytes] | None = None  # the process; None before the start and after the stop
        self._started_at = 0.0  # by the monotonic clock
        self._short_lives = 0  # in a row
        self._restart: asyncio.Task[None] | None = None  # the restart after the end of the process
        self.clients = 0

    @property
    def is_started(self) -> bool:
        """True if running, or about to restart."""
        return self._child is not None

    @property
    def is_running(self) -> bool:
        """True if the process can take clients."""
        return self._socket is not None

    async def start(self) -> None:
        """Start the process; clients passed early are served once it is ready.

        Raises:
            OSError: too many open files or processes, or too little memory.
        """
        self._child, ours = await asyncio.to_thread(start_child, MODULE, self._settings)
        ours.setblocking(False)
        self._socket, self._started_at, self.clients = ours, time.monotonic(), 0
        asyncio.get_running_loop().add_reader(ours, self._take)

    def send(self, octets: bytes) -> None:
        """Send a message to the process, unless it is ending."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(octets)

    def give(self, client: socket.socket) -> bool:
        """Pass a client to the process; return False if refused."""
        assert self._socket is not None
        try:
            socket.send_fds(self._socket, [CLIENT], [client.fileno()])
        except OSError:
            return False
        self.clients += 1
        return True

    async def stop(self) -> None:
        """End the process."""
        if self._restart is not None:
            self._restart.cancel()
        self._disconnect()
        if self._child is not None:
            child, self._child = self._child, None
            await asyncio.to_thread(ended, child, 2 * LAST_WORDS)

    def _take(self) -> None:
        """Read messages from the process."""
        assert self._socket is not None
        try:
            octets, descriptors, _, _ = socket.recv_fds(self._socket, AT_ONCE, AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            octets, descriptors = b"", []
        if not octets:
            self._disconnect()
            self._restart = asyncio.get_running_loop().create_task(self._start_again(), name="TLS process")
        self.clients -= octets.count(ENDED)
        for descriptor in descriptors:
            self._processes.join(socket.socket(fileno=descriptor))

    def _disconnect(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._processes.look()

    async def _start_again(self) -> None:
        assert self._child is not None
        status = await asyncio.to_thread(ended, self._child, 2 * LAST_WORDS)
        is_short = time.monotonic() - self._started_at < SHORT_LIFE
        self._short_lives = self._short_lives + 1 if is_short else 0
        pause = pause_after(self._short_lives)
        log.error("a TLS process has ended with status %d; it is started again in %g s", status, pause)
        await start_again(self.start, pause, "a TLS process", log)
        self._processes.look()
