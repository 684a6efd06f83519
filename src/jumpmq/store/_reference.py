"""Messages laid out as Arrow columns: the plain twin of the compiled kernel, its specification and its stand-in."""

import itertools
from array import array
from typing import Any


def binary_column(messages: list[Any], name: str) -> tuple[bytes, bytes]:
    """One field of all messages as Arrow lays out a binary column (Arrow columnar format, variable-size binary).

    Args:
        name: ``exchange`` (as UTF-8), ``routing_key``, ``properties`` or ``body``.

    Returns:
        The offsets, n + 1 native 32-bit integers, and the octets side by side.

    Raises:
        OverflowError: the octets are 2 GiB or more.
    """
    values = [getattr(message, name) for message in messages]
    if name == "exchange":
        values = [value.encode() for value in values]
    offsets = array("i", itertools.accumulate(map(len, values), initial=0))
    return offsets.tobytes(), b"".join(values)


def seq_column(messages: list[Any]) -> bytes:
    """The messages' numbers, as native 64-bit integers."""
    return array("q", [message.seq for message in messages]).tobytes()


def time_column(messages: list[Any]) -> bytes:
    """When the messages were published, as native 64-bit integers of microseconds since the epoch."""
    return array("q", [int(message.published_at * 1e6 + 0.5) for message in messages]).tobytes()
