"""Origin of a connection: addresses of both ends, and encryption.

A TLS process sends the origin as the first octets on the socket that it passes to the broker: four octets of length,
then JSON.
"""

import asyncio
import json
import socket
from typing import Any, NamedTuple

from jumpmq.broker.security.certificates import Certificate

LENGTH = 4
"""Size of the length prefix of the JSON, in octets."""


class Encryption(NamedTuple):
    """The TLS of a connection.

    Attributes:
        protocol: version, such as ``TLSv1.3``.
        cipher: name of the cipher.
        certificate: verified certificate of the client, if any.
    """

    protocol: str | None
    cipher: str
    certificate: Certificate | None


class ConnectionOrigin(NamedTuple):
    """The two ends of a connection.

    Attributes:
        peer: address and port of the client; ``unknown`` and 0 if the client was gone before its acceptance.
        server: address and port of the broker.
        tls: the encryption; None without TLS.
    """

    peer: tuple[str, int]
    server: tuple[str, int]
    tls: Encryption | None

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> "ConnectionOrigin":
        """Return the origin of a socket accepted by the event loop."""
        peer = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        server = (transport.get_extra_info("sockname") or ("unknown", 0))[:2]
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            return cls(peer, server, None)
        cipher = tls.cipher()
        return cls(peer, server, Encryption(tls.version(), cipher[0] if cipher else "", tls.getpeercert() or None))

    def with_tls(self, transport: asyncio.BaseTransport) -> "ConnectionOrigin":
        """Return a copy with the transport's TLS, if TLS is done in this process."""
        return self if self.tls is not None else self._replace(tls=ConnectionOrigin.of(transport).tls)

    def send(self, connection: socket.socket) -> None:
        """Send the origin to the broker."""
        octets = json.dumps(self).encode()
        connection.sendall(len(octets).to_bytes(LENGTH) + octets)

    @classmethod
    def receive(cls, connection: socket.socket) -> "ConnectionOrigin":
        """Receive the origin from a TLS process, which sends the whole origin before it passes the socket.

        Raises:
            OSError, ValueError: the origin is incomplete.
        """
        length = int.from_bytes(_received(connection, LENGTH))
        peer, server, tls = json.loads(_received(connection, length))
        return cls(tuple(peer), tuple(server), None if tls is None else Encryption(*_tuples(tls)))


def _received(connection: socket.socket, length: int) -> bytes:
    octets = b""
    while len(octets) < length:
        piece = connection.recv(length - len(octets))
        if not piece:
            raise ConnectionResetError("the other end is gone")
        octets += piece
    return octets


def _tuples(value: Any) -> Any:
    """Convert lists, from JSON, back to tuples: the parts of a certificate's names."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(one) for key, one in value.items()} if isinstance(value, dict) else value
