"""Notifications to systemd: the protocol of sd_notify(3), a datagram per state."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Notify the supervisor of a state, such as ``READY=1``; does nothing if `NOTIFY_SOCKET` is not set.

    Errors are ignored: the broker serves without a supervisor, too.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(state.encode(), address)
