"""Pass a client's socket to another process of the machine, if that process is the home of the client's virtual host.

The socket travels with one packet over a Unix socket of its own, in the directory of the links' sockets. A packet that
does not begin with the links' secret is dropped.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jumpmq.nodes.transport.links import Links
from jumpmq.topology import Topology, VirtualHost

log = logging.getLogger(__name__)

LONGEST = 100_000
"""Maximum octets of a packet: the limit of a Unix socket for one message."""

WAITING = 1024
"""Maximum number of packets waiting for a busy process; further clients stay at their current process."""

SILENCE = 3.0
"""Seconds without a sign of life before a process is given no clients: the process may be stopped."""

Taken = Callable[[socket.socket, bytes], None]
"""Callback serving a received client, with the data known about the client."""


class HandOver:
    """One process's end of the passing of sockets.

    Args:
        directory: the directory of the links' sockets.
        home: the number of this process's home.
        links: the links to the other homes.
    """

    def __init__(self, directory: Path, home: int, links: Links) -> None:
        self._directory = directory  # of the Unix sockets
        self._home = home  # number of the local home
        self._links = links  # to the other homes
        self._secret = b""  # required of senders
        self._topology: Topology  # knows the homes whose queues are moving away
        self._listening: socket.socket | None = None  # accepts the packets of other processes
        self._incoming: set[socket.socket] = set()  # connected senders whose packet has not arrived

    def listen(self, topology: Topology, secret: str, taken: Taken) -> None:
        """Start accepting clients from peers, and passing clients to peers.

        Args:
            secret: the links' secret.

        Raises:
            OSError: the socket cannot be made.
        """
        self._topology, self._secret = topology, secret.encode()
        path = self._path(self._home)
        # A killed process leaves its socket's file, and `bind` refuses an existing one.
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        # The socket accepts clients with the state that the sender claims: only the broker's own user may connect.
        before = os.umask(0o177)
        try:
            self._listening.bind(str(path))
        finally:
            os.umask(before)
        self._listening.listen(WAITING)
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept, taken)

    def home_of(self, vhost: VirtualHost) -> int | None:
        """Return the home for the clients of a virtual host; None if clients may stay here."""
        home, topology = vhost.home, self._topology
        if home in (0, self._home) or home in topology.left or topology.node_of(home) != topology.node_of(self._home):
            return None
        link = self._links.to(home)
        return None if link is None or link.silence > SILENCE else home

    def give(self, home: int, client: int, known: bytes) -> bool:
        """Pass a client to another home; return True if received there.

        Args:
            client: the descriptor of its socket, which stays open here.
            known: the client's state, for the receiving process.
        """
        packet = self._secret + known
        if len(packet) > LONGEST:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.connect(str(self._path(home)))
                socket.send_fds(sender, [packet], [client])
            except OSError as error:
                log.info("a client stays in this process: home %d did not accept its socket: %s", home, error)
                return False
        return True

    def stop(self) -> None:
        """Stop accepting clients from peers."""
        loop = asyncio.get_running_loop()
        for one in (self._listening, *self._incoming):
            if one is not None:
                loop.remove_reader(one.fileno())
                one.close()
        if self._listening is not None:
            self._path(self._home).unlink(missing_ok=True)
        self._listening = None
        self._incoming.clear()

    def _accept(self, taken: Taken) -> None:
        assert self._listening is not None
        with suppress(OSError):  # the sender is gone
            sender, _ = self._listening.accept()
            sender.setblocking(False)
            self._incoming.add(sender)
            asyncio.get_running_loop().add_reader(sender.fileno(), self._read, sender, taken)

    def _read(self, sender: socket.socket, taken: Taken) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(sender, LONGEST, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        asyncio.get_running_loop().remove_reader(sender.fileno())
        self._incoming.discard(sender)
        sender.close()
        clients = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        size = len(self._secret)
        # The receiver trusts the state in the packet: only processes of this broker know the secret.
        if clients and hmac.compare_digest(packet[:size], self._secret):
            taken(clients.pop(), packet[size:])
        for client in clients:
            client.close()

    def _path(self, home: int) -> Path:
        return self._directory / f"clients-{home}.sock"
