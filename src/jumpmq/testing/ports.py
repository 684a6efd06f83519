"""Ports of the loopback, and what answers there."""

from __future__ import annotations

import contextlib
import socket

from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, Refused

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of the loopback on which nothing listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def listening(port: int) -> bool:
    """Whether something accepts connections at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def accepts_clients(port: int) -> bool:
    """Whether a client can log in as guest and open a channel."""
    try:
        AMQPConnection(AMQPAddress(HOST, port)).close()
    except (ConnectionLost, Refused):
        return False
    return True
