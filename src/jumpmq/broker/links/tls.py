"""Links between machines: TCP with TLS 1.3.

Each process makes itself a certificate that no authority has signed. It is not what is trusted: the handshake of the
link proves that both ends know the secret, and have this connection's certificate before them.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import cast

import trustme

from jumpmq.broker.links.directory import Directory
from jumpmq.broker.links.link import HELLO_TIMEOUT, Link, refusals

HANDSHAKES = 64
"""Links of others at most that have not proved yet who they are; more are refused at once."""

CONNECT_TIMEOUT = 5.0
"""Seconds until an attempt to connect is given up."""

Factory = Callable[[], asyncio.Protocol]


class TLSSockets:
    """See :class:`~jumpmq.broker.links.links.Ways`.

    Args:
        directory: where the others are; is told where this one is.
        home: the number of this process's home.
        host: the address to listen on.
        port: the same; 0 picks a free one.
    """

    def __init__(self, directory: Directory, home: int, host: str, port: int = 0) -> None:
        self.cluster = directory.cluster
        self.secret = directory.secret
        self.on_change = directory.on_change
        self._directory = directory
        self._home = home  # the number of this one
        self._where = host, port  # to listen on
        self._server: asyncio.Server | None = None
        self._pending: set[_Accepted] = set()  # links that have not proved who they are
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname, self._client.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # the proof is over the certificate
        self._own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._client.minimum_version = self._own.minimum_version = ssl.TLSVersion.TLSv1_3
        issued = trustme.CA(organization_name="JumpMQ").issue_cert(f"home-{home}")
        issued.configure_cert(self._own)
        self._certificate = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    @property
    def homes(self) -> Collection[int]:
        """The numbers of all homes that are known."""
        return {self._home, *self._directory.addresses}

    async def listen(self, factory: Factory) -> None:
        """Take links of others, and tell the directory where."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Accepted(self._pending, self._own, factory), *self._where)
        self._directory.announce(self._home, self._server.sockets[0].getsockname()[1])

    async def connect(self, home: int, factory: Factory) -> asyncio.BaseProtocol:
        """Connect to another home, where it is now."""
        address = self._directory.addresses.get(home)
        if address is None:
            raise OSError(f"home {home} has no address")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    factory, *address, ssl=self._client, ssl_handshake_timeout=HELLO_TIMEOUT
                )
        except ssl.SSLError as error:
            raise OSError(f"home {home} does not speak TLS: {error}") from None
        except TimeoutError:
            raise OSError(f"home {home} does not answer") from None
        _send_at_once(transport)
        return protocol

    def certificate(self, transport: asyncio.Transport, connects: bool) -> bytes:
        """The certificate of the accepting end, in DER."""
        if not connects:
            return self._certificate
        found = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return cast("bytes", found)

    def close(self) -> None:
        """Take no more links."""
        if self._server is not None:
            self._server.close()
        for pending in list(self._pending):
            pending.close()


class _Accepted(asyncio.Protocol):
    """A connection of which it is not known whose it is, before TLS.

    Args:
        pending: all of these, and their links that are not up.
        context: for TLS.
        factory: makes a link.
    """

    def __init__(self, pending: set["_Accepted"], context: ssl.SSLContext, factory: Factory) -> None:
        self._pending = pending
        self._context = context
        self._factory = factory
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None  # does what comes before the link is up

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._pending) >= HANDSHAKES:
            refusals.add(f"a link of {self._origin()} was refused: {HANDSHAKES} have not proved yet who they are")
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._pending.add(self)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def connection_lost(self, exc: Exception | None) -> None:
        self._pending.discard(self)

    def close(self) -> None:
        """Break it."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self) -> None:
        link, early = cast("Link", self._factory()), _Early()
        _send_at_once(self._transport)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport, early, self._context, server_side=True, ssl_handshake_timeout=HELLO_TIMEOUT
            )
            if transport is None or early.is_lost:
                return
            transport.set_protocol(link)
            link.connection_made(transport)
            if early.data:
                link.data_received(bytes(early.data))
            await link.decided.wait()
        except (OSError, ssl.SSLError) as error:  # a timeout is an OSError, too
            refusals.add(f"a link of {self._origin()} was refused: no TLS ({error or type(error).__name__})")
            self._transport.abort()
        finally:
            self._pending.discard(self)

    def _origin(self) -> str:
        return str(self._transport.get_extra_info("peername"))


class _Early(asyncio.Protocol):
    """Holds what comes right behind the handshake of TLS, until the link takes over."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def _send_at_once(transport: asyncio.BaseTransport) -> None:
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
