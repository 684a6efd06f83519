"""Links between machines: TCP with TLS 1.3.

Each process makes a self-signed certificate. No authority has to vouch for the certificate: the handshake of the link
proves that both ends know the secret, and that both see the certificate of this connection.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection
from typing import cast

import trustme

from jumpmq.nodes.timing import TIMING, Timing
from jumpmq.nodes.transport.directory import Directory
from jumpmq.nodes.transport.link import Link, refusals

HANDSHAKES = 64
"""Maximum number of incoming links without a proof of identity. A new link replaces the oldest link from the address
with the most, so that flooding from one address keeps out no home of a different address."""

CONNECT_TIMEOUT = 5.0
"""Timeout of an attempt to connect, in seconds."""

PAUSE = 1.0
"""Pause after a failure to accept a connection, in seconds: for example, the process has no free file descriptors."""

Factory = Callable[[], asyncio.BaseProtocol]


class TLSSockets:
    """See :class:`~jumpmq.nodes.transport.links.Ways`.

    Args:
        directory: addresses of all homes; gets the address of this home.
        home: the number of this process's home.
        host: the address to listen on.
        port: listening port; 0 picks a free port.
        timing: intervals and bounds of this process.
        handshakes: maximum number of handshakes at once.
    """

    def __init__(
        self,
        directory: Directory,
        home: int,
        host: str,
        port: int = 0,
        timing: Timing = TIMING,
        handshakes: int = HANDSHAKES,
    ) -> None:
        self._hello_timeout, self._handshakes = timing.hello_timeout, handshakes
        self.cluster = directory.cluster
        self.secret = directory.secret
        self.on_change = directory.on_change
        self._directory = directory
        self._home = home  # number of the local home
        self._where = host, port  # to listen on
        self._listening: socket.socket | None = None  # accepts links
        self._accepting: asyncio.Task[None] | None = None  # runs ``_accept``
        # unfinished incoming handshakes with the clients' addresses, oldest first
        self._pending: dict[asyncio.Task[None], str] = {}
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname, self._client.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # the proof covers the certificate
        self._own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._client.minimum_version = self._own.minimum_version = ssl.TLSVersion.TLSv1_3
        issued = trustme.CA(organization_name="JumpMQ").issue_cert(f"home-{home}")
        issued.configure_cert(self._own)
        self._certificate = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    @property
    def homes(self) -> Collection[int]:
        """Numbers of all known homes."""
        return {self._home, *self._directory.addresses}

    async def listen(self, factory: Factory) -> None:
        """Start accepting links from peers, and announce the address to the directory."""
        host, port = self._where
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        self._listening = socket.create_server(address[:2], family=family, backlog=self._handshakes)
        self._listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listening, factory), name="links")
        self._directory.announce(self._home, self._listening.getsockname()[1])

    async def _accept(self, listening: socket.socket, factory: Factory) -> None:
        """Accept connections from unknown peers.

        TLS begins with the socket: loops differ in whether a transport can be kept from reading before its TLS begins.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                refusals.add(f"no link can be accepted: {error}")
                await asyncio.sleep(PAUSE)
                continue
            if len(self._pending) >= self._handshakes:
                self._make_place()
            task = asyncio.create_task(self._shake_hands(accepted, factory))
            self._pending[task] = _address(accepted)
            task.add_done_callback(lambda task: self._pending.pop(task, None))

    def _make_place(self) -> None:
        """End the oldest handshake from the address with the most."""
        (address, count), *_ = Counter(self._pending.values()).most_common(1)
        refusals.add(
            f"a link of {address} was refused: {count} links from this address have not proved their identity yet"
        )
        oldest = next(task for task, of in self._pending.items() if of == address)
        del self._pending[oldest]
        oldest.cancel()

    async def _shake_hands(self, accepted: socket.socket, factory: Factory) -> None:
        """Perform the handshake before a link is up."""
        origin, link = _origin(accepted), cast("Link", factory())
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: link, accepted, ssl=self._own, ssl_handshake_timeout=self._hello_timeout
            )
        except asyncio.CancelledError:
            # The transport closes the socket. Closed here, the socket would leave its number to another file while the
            # event loop still watches the number for the transport.
            link.close()
            raise
        except (OSError, ssl.SSLError) as error:  # a timeout is an OSError, too
            refusals.add(f"a link of {origin} was refused: no TLS ({error or type(error).__name__})")
            accepted.close()
            return
        _send_at_once(transport)
        try:
            await link.decided.wait()
        except asyncio.CancelledError:
            transport.abort()
            raise

    async def connect(self, home: int, factory: Factory) -> asyncio.BaseProtocol:
        """Connect to another home at the home's current address."""
        address = self._directory.addresses.get(home)
        if address is None:
            raise OSError(f"home {home} has no address")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    factory, *address, ssl=self._client, ssl_handshake_timeout=self._hello_timeout
                )
        except ssl.SSLError as error:
            raise OSError(f"home {home} does not speak TLS: {error}") from None
        except TimeoutError:
            raise OSError(f"home {home} does not answer") from None
        _send_at_once(transport)
        return protocol

    def certificate(self, transport: asyncio.Transport, connects: bool) -> bytes:
        """Return the certificate of the accepting end, in DER."""
        if not connects:
            return self._certificate
        found = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return cast("bytes", found)

    def close(self) -> None:
        """Stop accepting links."""
        if self._accepting is not None and self._listening is not None:
            self._accepting.cancel()
            # The event loop of the standard library would watch the number until its next iteration, and another file
            # may have the number by then.
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for pending in list(self._pending):
            pending.cancel()


def _address(accepted: socket.socket) -> str:
    """Return the address of a connection's client; empty if the client is gone."""
    try:
        return str(accepted.getpeername()[0])
    except OSError:
        return ""


def _origin(accepted: socket.socket) -> str:
    """Return the origin of a connection, for the log."""
    try:
        return str(accepted.getpeername())
    except OSError:
        return "a client that is gone"


def _send_at_once(transport: asyncio.BaseTransport) -> None:
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
