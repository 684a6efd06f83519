"""Calls: connections between homes beside the link, with the same handshake, for HTTP requests."""

import asyncio
from collections.abc import Callable
from typing import cast

from jumpmq.nodes.transport.handshake import Handshake, HandshakeRefused
from jumpmq.nodes.transport.link import HEADER, LONGEST_HELLO
from jumpmq.nodes.transport.records import HELLO, PROOF

READ = 256 << 10
"""Octets waiting to be read before reading from the peer is paused."""


class Caller(asyncio.Protocol):
    """Connecting end of a call: performs the handshake, then passes the connection to streams.

    Args:
        handshake: makes this end's handshake, once the connection is open.
        home: number of the called home; any other home is refused.
    """

    def __init__(self, handshake: Callable[[asyncio.Transport], Handshake], home: int, timeout: float) -> None:
        self._make_handshake = handshake  # makes the handshake once connected
        self._home = home  # number of the called home
        self._timeout = timeout  # seconds for the proof
        self._handshake: Handshake
        self._transport: asyncio.Transport  # of the socket
        self._unread = bytearray()  # the start of an incomplete record; after the proof, the first input of the streams
        # when the peer has proved its identity
        self._proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Wait for the peer's proof, and return the connection's streams for reading and writing.

        Raises:
            OSError: the peer is another home, or does not complete the handshake.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._proved
        except BaseException as error:
            self._transport.abort()
            if isinstance(error, TimeoutError):
                raise OSError(f"home {self._home} does not complete the handshake") from None
            raise
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        reader.feed_data(bytes(self._unread))
        return reader, asyncio.StreamWriter(self._transport, protocol, reader, loop)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._handshake = self._make_handshake(self._transport)
        self._write(HELLO, self._handshake.hello)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        try:
            while not self._proved.done() and len(self._unread) >= HEADER.size:
                length, kind = HEADER.unpack_from(self._unread)
                if length > LONGEST_HELLO:
                    raise HandshakeRefused(f"it sends a record of {length} octets")
                if len(self._unread) < HEADER.size + length:
                    break
                payload = bytes(self._unread[HEADER.size : HEADER.size + length])
                del self._unread[: HEADER.size + length]
                self._take(kind, payload)
        except Exception as error:
            if not self._proved.done():
                self._proved.set_exception(OSError(f"home {self._home} is refused: {error}"))
            self._transport.abort()

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == HELLO:
            if self._handshake.hear(payload).home != self._home:
                raise HandshakeRefused("another home answers")
            self._write(PROOF, self._handshake.proof())
        elif kind == PROOF:
            self._handshake.require(payload)
            self._proved.set_result(None)
        else:
            raise HandshakeRefused(f"it sends a record of kind {kind} before it has proved who it is")

    def _write(self, kind: int, payload: bytes) -> None:
        self._transport.write(HEADER.pack(len(payload), kind) + payload)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._proved.done():
            self._proved.set_exception(ConnectionResetError(f"home {self._home} has broken the connection"))
