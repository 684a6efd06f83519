"""Ports of the loopback, and what answers there."""

from __future__ import annotations

import contextlib
import socket
from random import SystemRandom

from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, Refused

HOST = "127.0.0.1"


LISTENED_ON = range(10_000, 32_000)
"""Below the ports that systems give to outgoing connections: one stays free until who listens there starts again."""


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of the loopback on which nothing listens."""
    found: dict[int, None] = {}
    while len(found) < count:
        port = SystemRandom().choice(LISTENED_ON)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            found[port] = None
    return [*found]


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
