"""The least that a server can do for a confirm: what the load generator sends is read, appended, synced and answered.

It speaks just enough AMQP for ``benchmarks.load confirm``: every method is answered, nothing is routed or kept. One
process, one thread, blocking calls, no event loop. What it reaches, this generator on this machine can reach at most.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.load.client import BUFFER_SIZE, FRAME, FRAME_OVERHEAD, METHOD, method, short

HEADER = b"AMQP\x00\x00\x09\x01"
PUBLISH, DECLARE_QUEUE, PURGE_QUEUE, START_OK, TUNE_OK = (60, 40), (50, 10), (50, 30), (10, 11), (10, 31)
START = method(0, 10, 10, b"\0\x09" + bytes(4) + b"\0\0\0\x05PLAIN\0\0\0\x05en_US")
TUNE = method(0, 10, 30, struct.pack(">HIH", 2047, 1 << 17, 0))
NUMBERS = struct.Struct(">HH")
CONFIRM = struct.Struct(">BHIIQBB")
FILE_SIZE = 64 << 20
"""Octets after which the file begins anew. They are written before the first confirm: no block becomes part of it."""


@contextmanager
def bare_server() -> Iterator[int]:
    """The server in a process of its own; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,), daemon=True)
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _serve(listener: socket.socket) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(FILE_SIZE))
        os.fsync(file.fileno())
        ready = 0
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                ready = _Conversation(connection, file.fileno(), ready).hold()


class _Conversation:
    """One connection.

    Args:
        file: the descriptor that is appended to.
        ready: how many messages the first queue is said to hold.
    """

    def __init__(self, connection: socket.socket, file: int, ready: int) -> None:
        self._connection = connection
        self._file = file
        self._ready = ready
        self._published = self._size = self._offset = 0

    def hold(self) -> int:
        """Answers until the client closes; returns how many messages the first queue is said to hold."""
        buffer = bytearray(BUFFER_SIZE)
        view, filled = memoryview(buffer), 0
        while received := self._connection.recv_into(view[filled:]):
            filled += received
            used = self._publishes(view[:filled])
            if not used:
                used = self._methods(bytes(view[:filled]))
            view[: filled - used] = view[used:filled]
            filled -= used
        return self._ready

    def _publishes(self, octets: memoryview) -> int:
        """Takes the publishes that begin the octets, all of one size; returns how long they are."""
        if octets[0] != METHOD or NUMBERS.unpack_from(octets, FRAME.size) != PUBLISH:
            return 0
        if not self._size:
            end = 0
            for _ in range(3):  # method, header, body: the generator's small messages have one frame each
                if len(octets) < end + FRAME.size:
                    return 0
                end += FRAME.unpack_from(octets, end)[2] + FRAME_OVERHEAD
            self._size = end
        whole = len(octets) // self._size
        if not whole:
            return 0
        length = whole * self._size
        if self._offset + length > FILE_SIZE:
            self._offset = 0
        os.pwrite(self._file, octets[:length], self._offset)
        os.fdatasync(self._file)
        self._offset += length
        self._published += whole
        self._ready += whole
        self._connection.send(CONFIRM.pack(METHOD, 1, 13, 60 << 16 | 80, self._published, whole > 1, 0xCE))
        return length

    def _methods(self, octets: bytes) -> int:
        """Answers the whole methods that begin the octets; returns how long they are."""
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
            count = self._ready if name.endswith("q0") else 0
            self._connection.sendall(method(channel, 50, 11, short(name) + struct.pack(">II", count, 0)))
        elif numbers != TUNE_OK:
            if numbers == PURGE_QUEUE:
                self._ready = 0
            self._connection.sendall(method(channel, class_id, method_id + 1, bytes(8)))
