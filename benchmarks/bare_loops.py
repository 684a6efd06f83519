"""The bare server with followers (``benchmarks/bare.py``), under the constraints of a broker in Python.

Each process has a uvloop event loop instead of blocking calls. The followers are reached through TLS 1.3, and each
process writes and syncs in a compiled thread, so that a slow disk does not block the loop. The server does no further
work: it measures the cost of these parts, with all processes on the cores of one machine and all files on one disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import trustme
import uvloop

from benchmarks.bare import FILE_SIZE, LENGTH, Conversation, processes
from benchmarks.load.client import BUFFER_SIZE
from jumpmq.store._worker import Worker


@contextmanager
def bare_loops(followers: int) -> Iterator[int]:
    """Run the server and its followers, each in a process of its own. Return the server's port."""
    with ExitStack() as stack:
        certificate = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "certificate.pem"
        trustme.CA().issue_cert("follower").private_key_and_cert_chain_pem.write_to_path(certificate)
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(1 + followers)]
        for listener in listeners[1:]:
            stack.enter_context(processes(_follow, listener, certificate))
        ports = [listener.getsockname()[1] for listener in listeners]
        stack.enter_context(processes(_serve, listeners[0], ports[1:]))
        yield ports[0]


class _LoopLog:
    """A log file of fixed size, overwritten in a circle by a thread.

    Args:
        on_synced: called in the event loop after each sync.
    """

    def __init__(self, on_synced: Callable[[], None]) -> None:
        self._on_synced = on_synced
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is open as long as the process lives
        self._file.write(bytes(FILE_SIZE))
        os.fsync(self._file.fileno())
        self._offset = 0
        self._readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._worker = Worker(writable)
        asyncio.get_running_loop().add_reader(self._readable, self._look)

    def append(self, octets: bytes) -> None:
        """Write and sync octets, after the previous append is on disk."""
        if self._offset + len(octets) > FILE_SIZE:
            self._offset = 0
        self._worker.append(self._file.fileno(), self._offset, [octets])
        self._offset += len(octets)

    def _look(self) -> None:
        os.read(self._readable, 64)
        if (result := self._worker.take()) is not None:
            assert not result[0], os.strerror(result[0])
            self._on_synced()


# --- a follower ---


def _follow(listener: socket.socket, certificate: Path) -> None:
    async def follow() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        await (
            await asyncio.get_running_loop().create_server(_LoopFollower, sock=listener, ssl=context)
        ).serve_forever()

    uvloop.run(follow())


class _LoopFollower(asyncio.Protocol):
    """Append received octets, and answer with their number."""

    def __init__(self) -> None:
        self._log = _LoopLog(self._synced)
        self._waiting = b""  # octets received during the write
        self._written = 0  # number of octets in the write

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = _without_delay(transport)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        if not self._written:
            self._append()

    def _append(self) -> None:
        octets, self._waiting = self._waiting, b""
        self._written = len(octets)
        self._log.append(octets)

    def _synced(self) -> None:
        self._transport.write(LENGTH.pack(self._written))
        self._written = 0
        if self._waiting:
            self._append()


# --- the server ---


def _serve(listener: socket.socket, followers: list[int]) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        server = _LoopServer(len(followers))
        for port in followers:
            await loop.create_connection(lambda: _FollowerAnswers(server), "127.0.0.1", port, ssl=context)
        await (await loop.create_server(lambda: _LoopClient(server), sock=listener)).serve_forever()

    uvloop.run(serve())


class _LoopServer:
    """Rounds of publishes: sent to the followers, appended, and confirmed after all answers.

    Args:
        followers: number of followers.

    Attributes:
        ready: number of messages reported for the first queue.
        transports: connections to the followers.
    """

    def __init__(self, followers: int) -> None:
        self.ready = 0
        self.transports: list[asyncio.Transport] = []
        self._followers = followers
        self._log = _LoopLog(lambda: self.kept(0))
        self._waiting: dict[Conversation, bytes] = {}  # octets published during the current round
        self._round: list[tuple[Conversation, int]] = []  # with the numbers of confirms
        self._unkept = 0  # octets of the round, at all followers, that are not known to be on disk
        self._is_kept = True  # the round is on the disk of this process

    def published(self, conversation: Conversation, octets: bytes) -> None:
        self._waiting[conversation] = self._waiting.get(conversation, b"") + octets
        if not self._round:
            self._begin()

    def _begin(self) -> None:
        octets = b"".join(self._waiting.values())
        self._round = [(one, one.published) for one in self._waiting]
        self._waiting.clear()
        self._unkept, self._is_kept = len(octets) * self._followers, False
        for transport in self.transports:
            transport.write(octets)
        self._log.append(octets)

    def kept(self, octets: int) -> None:
        """Note a follower's synced octets, or, with 0, the sync of the round by this process."""
        self._unkept -= octets
        self._is_kept = self._is_kept or not octets
        if self._is_kept and not self._unkept:
            confirmed, self._round = self._round, []
            for conversation, published in confirmed:
                conversation.confirm(published)
            if self._waiting:
                self._begin()


class _FollowerAnswers(asyncio.Protocol):
    """The connection to a follower."""

    def __init__(self, server: _LoopServer) -> None:
        self._server = server
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.transports.append(_without_delay(transport))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // LENGTH.size * LENGTH.size
        self._rest = data[whole:]
        if whole:
            self._server.kept(sum(octets for (octets,) in LENGTH.iter_unpack(data[:whole])))


class _LoopClient(asyncio.Protocol):
    """A connection of the load generator, as the socket of a conversation."""

    def __init__(self, server: _LoopServer) -> None:
        self._server = server
        self._data = b""
        self._room = memoryview(bytearray(2 * BUFFER_SIZE))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = _without_delay(transport)
        self._conversation = Conversation(self._server, self)

    def data_received(self, data: bytes) -> None:
        self._data = data
        if octets := self._conversation.read(self._room):
            self._server.published(self._conversation, bytes(self._room[:octets]))

    def recv_into(self, room: memoryview) -> int:
        room[: len(self._data)] = self._data
        return len(self._data)

    def send(self, octets: bytes) -> None:
        self._transport.write(octets)

    sendall = send

    def close(self) -> None:
        self._transport.close()


def _without_delay(transport: asyncio.BaseTransport) -> asyncio.Transport:
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return cast("asyncio.Transport", transport)
