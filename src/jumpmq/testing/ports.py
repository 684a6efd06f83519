"""Ports of the loopback interface, and probes of their services."""

from __future__ import annotations

import contextlib
import socket
from random import SystemRandom

from jumpmq.client import AMQPAddress, AMQPConnection, ConnectionLost, RequestRefused

HOST = "127.0.0.1"


LISTENED_ON = range(10_000, 32_000)
"""Ports for listeners, below the system's range for outgoing connections: between a stop and the next start of the
listener, no outgoing connection can take the port.
"""


def free_ports(count: int) -> list[int]:
    """Return `count` distinct loopback ports without listeners."""
    found: dict[int, None] = {}
    while len(found) < count:
        port = SystemRandom().choice(LISTENED_ON)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            found[port] = None
    return [*found]


def listening(port: int) -> bool:
    """Return True if the port accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def accepts_clients(port: int) -> bool:
    """Return True if a guest can log in and open a channel."""
    try:
        AMQPConnection(AMQPAddress(HOST, port)).close()
    except (ConnectionLost, RequestRefused):
        return False
    return True
