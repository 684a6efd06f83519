"""HTTP/1.1 client for another home's private listener, with a few persistent connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self

import h11

from jumpmq.broker.errors import HomeUnreachable

READ = 256 << 10
"""Octets read at once."""

KEPT = 8
"""Maximum number of idle connections kept open per home."""

CONNECT_TIMEOUT = 2.0
"""Timeout for a home to accept a connection, in seconds."""

ANSWER_TIMEOUT = 60.0
"""Maximum time for a home to begin its answer, and between two parts of the answer, in seconds, unless set by the
caller.
"""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Headers = list[tuple[bytes, bytes]]


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.protocol = h11.Connection(h11.CLIENT)

    async def send(self, *events: h11.Event) -> None:
        if data := b"".join([self.protocol.send(event) or b"" for event in events]):
            self.writer.write(data)
            await self.writer.drain()

    async def receive(self, patience: float | None) -> h11.Event | type[h11.PAUSED]:
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(patience):  # wait_for may swallow a cancellation
                octets = await self.reader.read(READ)
            self.protocol.receive_data(octets)
        return event  # type: ignore[return-value]


class HomeAnswer:
    """Answer of a home. To be used in a ``with`` block; unread data is dropped at the end of the block.

    Attributes:
        status: HTTP status.
        headers: headers, with names in lower case.
    """

    def __init__(self, client: HomeClient, connection: _Connection, head: h11.Response, patience: float | None) -> None:
        self.status = head.status_code
        self.headers: Headers = list(head.headers)
        self._client = client
        self._connection = connection
        self._patience = patience  # timeout between two parts of the body
        self._is_whole = False  # True once the whole answer was read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection for reuse after reading the whole answer; else close the connection, seen by the home
        as a lost client.
        """
        self._client.give_back(self._connection, self._is_whole)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body, as received.

        Raises:
            HomeUnreachable: the answer was cut off.
        """
        try:
            while not isinstance(event := await self._connection.receive(self._patience), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    raise HomeUnreachable(self._client.home, "the answer was cut off")
                yield bytes(event.data)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise HomeUnreachable(self._client.home, error or type(error).__name__) from None
        self._is_whole = True

    async def whole(self) -> bytes:
        """Return the body."""
        return b"".join([part async for part in self.parts()])

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the body."""
        begun = bytearray()
        async for part in self.parts():
            begun += part
            if b"\n" in part:
                *lines, rest = bytes(begun).split(b"\n")
                begun = bytearray(rest)
                for line in lines:
                    yield line


class HomeClient:
    """Client of a home's HTTP API.

    Args:
        home: number of the home.
        open_streams: opens a connection to the home.
        secret: proves to the home that a peer sends the request; None if the connection proves it.
    """

    def __init__(self, home: int, open_streams: Callable[[], Awaitable[Streams]], secret: str | None = None) -> None:
        self.home = home
        self._open_streams = open_streams  # opens a connection
        self._secret = secret  # authenticates requests of peers
        self._idle: list[_Connection] = []  # open and not in use
        self._open: set[_Connection] = set()  # all open connections

    async def ask(
        self,
        method: str,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes | AsyncIterable[bytes] = b"",
        *,
        is_repeatable: bool = False,
        patience: float | None = ANSWER_TIMEOUT,
    ) -> HomeAnswer:
        """Send a request; return after the head of the answer.

        Args:
            target: path and query.
            is_repeatable: True if a second execution does no harm. The request may then use an idle connection, which
                the home may have closed meanwhile.
            patience: timeout for the head, and between two parts of the body, in seconds; None for none.

        Raises:
            HomeUnreachable: the home does not answer.
        """
        sent = [(b"host", b"home"), *headers]
        if self._secret is not None:
            sent.append((b"jumpmq-secret", self._secret.encode()))
        if isinstance(body, bytes):
            sent.append((b"content-length", str(len(body)).encode()))
        else:
            sent.append((b"transfer-encoding", b"chunked"))
        request = h11.Request(method=method, target=target, headers=sent)
        while True:
            connection = self._used() if is_repeatable else None
            is_used = connection is not None
            connection = connection or await self._connect()
            try:
                return await self._exchange(connection, request, body, patience)
            except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
                self.give_back(connection, is_whole=False)
                if not is_used or isinstance(error, TimeoutError):
                    raise HomeUnreachable(self.home, error or type(error).__name__) from None
            except BaseException:
                self.give_back(connection, is_whole=False)
                raise

    def _used(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            self._end(connection)
        return None

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                connection = _Connection(*await self._open_streams())
        except (OSError, TimeoutError) as error:
            raise HomeUnreachable(self.home, error or type(error).__name__) from None
        self._open.add(connection)
        return connection

    async def _exchange(
        self, connection: _Connection, request: h11.Request, body: bytes | AsyncIterable[bytes], patience: float | None
    ) -> HomeAnswer:
        if isinstance(body, bytes):
            await connection.send(request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())
        else:
            await connection.send(request)
            async for part in body:
                await connection.send(h11.Data(data=part))
            await connection.send(h11.EndOfMessage())
        while not isinstance(event := await connection.receive(patience), h11.Response):
            if isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the connection was closed")
        return HomeAnswer(self, connection, event, patience)

    def give_back(self, connection: _Connection, is_whole: bool) -> None:
        """Return a connection after its use."""
        if is_whole and len(self._idle) < KEPT:
            try:
                connection.protocol.start_next_cycle()
            except h11.LocalProtocolError:
                self._end(connection)
            else:
                self._idle.append(connection)
        else:
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.writer.close()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._end(self._idle.pop())

    def abandon(self) -> None:
        """Close all connections; pending requests fail."""
        self._idle.clear()
        for connection in self._open:
            connection.writer.transport.abort()
        self._open.clear()
