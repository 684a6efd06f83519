"""Memory leaked by TLS clients, and by unknown peers at a node's link port, that connect and disconnect.

python -m fuzzing.soak --connections 100000
"""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from fuzzing.tls import LOGIN, REQUEST
from jumpmq.cli.certificates import make_certificates
from jumpmq.testing import JumpMQ
from jumpmq.testing.etcd import etcd
from jumpmq.testing.ports import free_ports

BATCH = 50
"""Number of concurrent connections."""

PATIENCE = 60.0
"""Timeout in seconds for an answer."""

FRAME = struct.Struct(">BHI")
"""Type, channel and size of a frame of AMQP."""

START_OK, TUNE_OK, OPEN, CLOSE = (10, 11), (10, 31), (10, 40), (10, 50)
"""Class and method of a client's methods."""


def method(which: tuple[int, int], arguments: bytes) -> bytes:
    """The frame of a method of class connection."""
    payload = struct.pack(">HH", *which) + arguments
    return FRAME.pack(1, 0, len(payload)) + payload + b"\xce"


LOGGING_IN = method(START_OK, b"\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US")
OPENING = method(TUNE_OK, struct.pack(">HIH", 2047, 131072, 60)) + method(OPEN, b"\x01/\0\0")
CLOSING = method(CLOSE, b"\0\xc8\0\0\0\0\0")


class Clients:
    """Opens connections to the ports of a broker.

    Args:
        amqps, https: the ports.
        context: trusts the broker's certificate.
        links: the port for links of nodes, or None.
    """

    def __init__(self, amqps: int, https: int, context: ssl.SSLContext, links: int | None = None) -> None:
        self._amqps, self._https, self._links = amqps, https, links
        self._context = context

    @property
    def kinds(self) -> list[str]:
        """The kinds of connections with an open port."""
        return [*KINDS, *(LINKS if self._links is not None else ())]

    def come_and_go(self, kind: str, count: int) -> None:
        """Open and close connections of a kind."""
        come, go = (KINDS | LINKS)[kind]
        while count > 0:
            here = [come(self) for _ in range(min(BATCH, count))]
            for client in here:
                go(client)
            count -= BATCH

    def dial(self, port: int) -> socket.socket:
        """A connection without TLS."""
        return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def shaken(self, port: int) -> ssl.SSLSocket:
        """A connection after its TLS handshake."""
        return self._context.wrap_socket(self.dial(port), server_hostname="localhost")

    def half_shaken(self) -> socket.socket:
        """An AMQP client in the middle of its TLS handshake."""
        client = self.dial(self._amqps)
        client.sendall(b"\x16\x03\x01")
        return client

    def silent(self) -> ssl.SSLSocket:
        """A silent AMQP client."""
        return self.shaken(self._amqps)

    def logged_in(self) -> ssl.SSLSocket:
        """A client of AMQP with an open virtual host."""
        client = self.shaken(self._amqps)
        for said in (LOGIN, LOGGING_IN, OPENING):
            client.sendall(said)
            read_frame(client)
        return client

    def asking(self) -> ssl.SSLSocket:
        """An HTTPS client after its answer."""
        client = self.shaken(self._https)
        client.sendall(REQUEST)
        client.recv(1 << 16)
        return client

    def stranger(self) -> ssl.SSLSocket:
        """A peer at the link port without identification."""
        assert self._links is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(self.dial(self._links))


def read_frame(client: socket.socket) -> bytes:
    """The payload of the next frame.

    Raises:
        ConnectionError: the connection was closed.
    """
    _, _, size = FRAME.unpack(read(client, FRAME.size))
    return read(client, size + 1)[:-1]


def read(client: socket.socket, size: int) -> bytes:
    """Read the given number of octets."""
    octets = b""
    while len(octets) < size:
        if not (part := client.recv(size - len(octets))):
            raise ConnectionResetError("the broker has closed the connection")
        octets += part
    return octets


def hang_up(client: socket.socket) -> None:
    """Close the socket."""
    client.close()


def reset(client: socket.socket) -> None:
    """Close the socket with a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def end_tls(client: socket.socket) -> None:
    """Close TLS, then the socket."""
    assert isinstance(client, ssl.SSLSocket)
    with suppress(OSError):
        client.unwrap()
    client.close()


def log_out(client: socket.socket) -> None:
    """Close the AMQP connection, TLS and the socket."""
    client.sendall(CLOSING)
    read_frame(client)
    end_tls(client)


Kinds = dict[str, tuple[Callable[[Clients], socket.socket], Callable[[socket.socket], None]]]

KINDS: Kinds = {
    "half a handshake": (Clients.half_shaken, hang_up),
    "silent": (Clients.silent, hang_up),
    "silent, TLS closed": (Clients.silent, end_tls),
    "logged in": (Clients.logged_in, log_out),
    "logged in, reset": (Clients.logged_in, reset),
    "HTTPS": (Clients.asking, end_tls),
    "HTTPS, reset": (Clients.asking, reset),
}
"""Functions that connect, and disconnect, clients."""

LINKS: Kinds = {"link": (Clients.stranger, hang_up), "link, reset": (Clients.stranger, reset)}
"""Kinds of connections to the link port."""


def growth(warm_up: int, count: int, arguments: Sequence[str] = (), links: bool = False) -> int:
    """Growth of a broker's processes in octets.

    Args:
        warm_up: connections of every kind before the measurement.
        count: connections of every kind.
        arguments: of `jumpmq serve`.
        links: run a node of a cluster, with etcd.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jumpmq-tls-")))
        made = make_certificates(directory)
        files = ["--tls-cert", str(made.server), "--tls-key", str(made.server_key), "--log-level", "warning"]
        amqps, https = free_ports(2)
        ports = ["--tls-port", str(amqps), "--https-port", str(https)]
        if links:
            (member,) = stack.enter_context(etcd(directory))
            ports += ["--cluster", "soak", "--etcd", member.url]
        broker = stack.enter_context(JumpMQ(arguments=[*files, *ports, *arguments]))
        context = ssl.create_default_context(cafile=made.ca)
        known = {amqps, https, broker.port, broker.http_port}
        clients = Clients(amqps, https, context, *(listening(broker.pid) - known if links else ()))
        for kind in clients.kinds:
            clients.come_and_go(kind, warm_up)
        before = settled(broker)
        for kind in clients.kinds:
            clients.come_and_go(kind, count)
            print(f"{kind}: {count}, {(settled(broker) - before) / 1e6:.1f} MB", flush=True)
        return settled(broker) - before


def listening(pid: int) -> set[int]:
    """IPv4 ports at which a process listens (Linux)."""
    files = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in files}


def settled(broker: JumpMQ) -> int:
    """Octets of the broker's processes, after the last connections are closed."""
    time.sleep(1)
    return broker.memory()
