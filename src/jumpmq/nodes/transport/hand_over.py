"""Clients of virtual hosts with a home at a different process of this machine: the sockets are passed to that process.

A packet with the socket goes through a Unix socket of its own, in the directory of the links. What comes before the
links' secret has been found in it is dropped.
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
"""Octets of a packet at most: what a Unix socket takes at once."""

WAITING = 1024
"""Maximum number of packets waiting for a busy process; further clients stay at their current process."""

SILENCE = 3.0
"""Seconds without a sign of life before a process is given no clients: the process may be stopped."""

Taken = Callable[[socket.socket, bytes], None]
"""Callback serving a received client, with the data known about the client."""


class HandOver:
    """One process's end.

    Args:
        directory: of the links' sockets.
        home: the number of this process's home.
        links: to the others.
    """

    def __init__(self, directory: Path, home: int, links: Links) -> None:
        self._directory = directory  # of the sockets
        self._home = home  # number of the local home
        self._links = links  # to the others
        self._secret = b""  # required of senders
        self._topology: Topology  # knows the homes that are left
        self._listening: socket.socket | None = None  # where they come in
        self._incoming: set[socket.socket] = set()  # senders whose packet is not here yet

    def listen(self, topology: Topology, secret: str, taken: Taken) -> None:
        """Start accepting clients from peers, and passing clients to peers.

        Args:
            secret: that of the links.

        Raises:
            OSError: the socket cannot be made.
        """
        self._topology, self._secret = topology, secret.encode()
        path = self._path(self._home)
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
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
        """Pass a client to a remote home; return True if received there.

        Args:
            client: the descriptor of its socket, which stays open here.
            known: state of the client.
        """
        packet = self._secret + known
        if len(packet) > LONGEST:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.connect(str(self._path(home)))
                socket.send_fds(sender, [packet], [client])
            except OSError as error:
                log.info("a client stays here, as home %d does not take it: %s", home, error)
                return False
        return True

    def stop(self) -> None:
        """Take no more."""
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
        with suppress(OSError):  # none is there
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
        if clients and hmac.compare_digest(packet[:size], self._secret):
            taken(clients.pop(), packet[size:])
        for client in clients:
            client.close()

    def _path(self, home: int) -> Path:
        return self._directory / f"clients-{home}.sock"
