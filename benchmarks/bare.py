"""A lower bound for a confirm: a server that only reads, appends, syncs and answers the load generator's messages.

The server speaks the subset of AMQP of ``benchmarks.load confirm`` and ``singly``: every method is answered, no message
is routed or kept. One process with one thread runs an epoll loop: a round reads all ready clients, appends and syncs
their octets at once, and answers every client. Its rate is the maximum of this generator on this machine.

With followers, the octets are sent to the followers before the append, and answered after all followers have synced
them: a lower bound for copies. A follower is a process that receives, appends, syncs and answers, over TCP without TLS.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from benchmarks.load.client import BUFFER_SIZE, FRAME, FRAME_OVERHEAD, METHOD, method, short

HEADER = b"AMQP\x00\x00\x09\x01"
PUBLISH, DECLARE_QUEUE, PURGE_QUEUE, START_OK, TUNE_OK = (60, 40), (50, 10), (50, 30), (10, 11), (10, 31)
START = method(0, 10, 10, b"\0\x09" + bytes(4) + b"\0\0\0\x05PLAIN\0\0\0\x05en_US")
TUNE = method(0, 10, 30, struct.pack(">HIH", 2047, 1 << 17, 0))
NUMBERS = struct.Struct(">HH")
LENGTH = struct.Struct("=Q")
CONFIRM = struct.Struct(">BHIIQBB")
LEAST_ROOM = 1 << 16
"""Octets of free buffer below which a round reads from no further client."""
FILE_SIZE = 64 << 20
"""Octets after which the file is overwritten from its start. They are allocated before the first confirm."""


@contextmanager
def bare_server(followers: int = 0) -> Iterator[int]:
    """Run the server and its followers, each in a process of its own. Return the server's port."""
    with ExitStack() as stack:
        links = [stack.enter_context(_follower()) for _ in range(followers)]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(processes(_serve, listener, links))
        yield listener.getsockname()[1]


@contextmanager
def _follower() -> Iterator[socket.socket]:
    """Run a follower in a process of its own. Return the server's end of the connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        processes(_follow, listener),
    ):
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield ours


@contextmanager
def processes(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _serve(listener: socket.socket, followers: list[socket.socket]) -> None:
    with _log() as log:
        _Server(listener, log, followers).serve()


def _follow(listener: socket.socket) -> None:
    """Append and sync received octets, and answer with their number, until the connection ends."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(BUFFER_SIZE))
    with _log() as log:
        while received := connection.recv_into(buffer):
            log.append(buffer[:received])
            connection.sendall(LENGTH.pack(received))


@contextmanager
def _log() -> Iterator[_Log]:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(FILE_SIZE))
        os.fsync(file.fileno())
        yield _Log(file.fileno())


class _Log:
    """A log file of fixed size, overwritten in a circle.

    Args:
        file: file descriptor; the file has ``FILE_SIZE`` octets.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._offset = 0

    def append(self, octets: memoryview) -> None:
        """Write and sync octets."""
        if self._offset + len(octets) > FILE_SIZE:
            self._offset = 0
        os.pwrite(self._file, octets, self._offset)
        os.fdatasync(self._file)
        self._offset += len(octets)


class _Server:
    """All connections of the server.

    Args:
        log: receives the published octets.
        followers: connections to the processes with copies.

    Attributes:
        ready: number of messages reported for the first queue.
    """

    def __init__(self, listener: socket.socket, log: _Log, followers: list[socket.socket]) -> None:
        self.ready = 0
        self._listener = listener
        self._log = log
        self._followers = followers
        self._buffer = memoryview(bytearray(BUFFER_SIZE))

    def serve(self) -> None:
        """Loop: read all ready clients, append the published octets, sync, and answer every client."""
        conversations: dict[int, Conversation] = {}
        with select.epoll() as poll:
            poll.register(self._listener, select.EPOLLIN)
            while True:
                filled, published = 0, []
                for number, _ in poll.poll():
                    if number == self._listener.fileno():
                        connection, _ = self._listener.accept()
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        poll.register(connection, select.EPOLLIN)
                        conversations[connection.fileno()] = Conversation(self, connection)
                    elif BUFFER_SIZE - filled > LEAST_ROOM:  # otherwise read in the next round
                        conversation = conversations[number]
                        octets = conversation.read(self._buffer[filled:])
                        if octets is None:
                            del conversations[number]
                        elif octets:
                            published.append(conversation)
                            filled += octets
                if filled:
                    self._keep(filled)
                    for conversation in published:
                        conversation.confirm(conversation.published)

    def _keep(self, filled: int) -> None:
        """Append the octets of the buffer here and at every follower."""
        for follower in self._followers:
            follower.sendall(self._buffer[:filled])
        self._log.append(self._buffer[:filled])
        for follower in self._followers:
            stored = 0
            while stored < filled:
                answer = follower.recv(LENGTH.size, socket.MSG_WAITALL)
                if not answer:
                    raise ConnectionError("a follower has ended")
                stored += LENGTH.unpack(answer)[0]


class ConversationServer(Protocol):
    """Server of conversations.

    Attributes:
        ready: number of messages reported for the first queue.
    """

    ready: int


class ConversationSocket(Protocol):
    """The socket methods used by a conversation."""

    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: bytes, /) -> object: ...
    def sendall(self, data: bytes, /) -> object: ...
    def close(self) -> None: ...


class Conversation:
    """A connection.

    Attributes:
        published: number of received publishes.
    """

    def __init__(self, server: ConversationServer, connection: ConversationSocket) -> None:
        self._server = server
        self._connection = connection
        self._rest = b""
        self._size = self.published = self._confirmed = 0

    def read(self, room: memoryview) -> int | None:
        """Read once, and answer methods.

        Returns:
            length in octets of the complete publishes at the start of the buffer; None after a close by the client.
        """
        filled = len(self._rest)
        room[:filled] = self._rest
        received = self._connection.recv_into(room[filled:])
        if not received:
            self._connection.close()
            return None
        octets = room[: filled + received]
        used = published = self._publishes(octets)
        if not published:
            used = self._methods(bytes(octets))
        self._rest = bytes(octets[used:])
        return published

    def confirm(self, published: int) -> None:
        """Confirm the publishes up to the given number, without repeated confirms."""
        multiple = published > self._confirmed + 1
        self._confirmed = published
        self._connection.send(CONFIRM.pack(METHOD, 1, 13, 60 << 16 | 80, published, multiple, 0xCE))

    def _publishes(self, octets: memoryview) -> int:
        """Count the leading publishes, all of one size. Return their length in octets."""
        if len(octets) < FRAME.size + NUMBERS.size or octets[0] != METHOD:
            return 0
        if NUMBERS.unpack_from(octets, FRAME.size) != PUBLISH:
            return 0
        if not self._size:
            end = 0
            for _ in range(3):  # method, header, body: a small message of the generator has one frame of each
                if len(octets) < end + FRAME.size:
                    return 0
                end += FRAME.unpack_from(octets, end)[2] + FRAME_OVERHEAD
            self._size = end
        whole = len(octets) // self._size
        self.published += whole
        self._server.ready += whole
        return whole * self._size

    def _methods(self, octets: bytes) -> int:
        """Answer the leading complete methods. Return their length in octets."""
        if octets.startswith(HEADER):
            self._connection.sendall(START)
            return len(HEADER)
        used = 0
        while len(octets) >= used + FRAME.size:
            _, channel, size = FRAME.unpack_from(octets, used)
            if len(octets) < used + size + FRAME_OVERHEAD:
                break
            payload = octets[used + FRAME.size :][:size]
            used += size + FRAME_OVERHEAD
            self._answer(channel, NUMBERS.unpack_from(payload), payload[4:])
        return used

    def _answer(self, channel: int, numbers: tuple[int, int], arguments: bytes) -> None:
        class_id, method_id = numbers
        if numbers == START_OK:
            self._connection.sendall(TUNE)
        elif numbers == DECLARE_QUEUE:
            name = arguments[3 : 3 + arguments[2]].decode()
            count = self._server.ready if name.endswith("q0") else 0
            self._connection.sendall(method(channel, 50, 11, short(name) + struct.pack(">II", count, 0)))
        elif numbers != TUNE_OK:
            if numbers == PURGE_QUEUE:
                self._server.ready = 0
            self._connection.sendall(method(channel, class_id, method_id + 1, bytes(8)))
