"""The session of a group of readers over homes: it has one at each, and they are told together."""

from __future__ import annotations

from collections.abc import Mapping, Sized

SEPARATOR = ";"
"""Stands between the sessions at several homes, each as ``HOME:SESSION``."""


def joined(sessions: Mapping[int, str]) -> str:
    """The session of a group, of its sessions at all homes."""
    return SEPARATOR.join(f"{home}:{session}" for home, session in sessions.items())


def part_of(session: str | None, home: int) -> str | None:
    """A home's part of a session; what has none is as it is, and known nowhere."""
    if session is None:
        return None
    parts = dict(one.partition(":")[::2] for one in session.split(SEPARATOR))
    return parts.get(str(home), session)


def share(most: int | None, queues: Sized, of_all: Sized) -> int | None:
    """A home's share of what may be reserved, by its part of the queues; rounded up, so that each of them goes on."""
    return most and -(-most * len(queues) // max(1, len(of_all)))
