"""The session of a reader group over several homes: one session per home, joined into a single text."""

from __future__ import annotations

from collections.abc import Mapping, Sized

SEPARATOR = ";"
"""Separator of the homes' sessions, in the form ``HOME:SESSION``."""


def joined(sessions: Mapping[int, str]) -> str:
    """Join the sessions at all homes into the group's session."""
    return SEPARATOR.join(f"{home}:{session}" for home, session in sessions.items())


def part_of(session: str | None, home: int) -> str | None:
    """Return a home's part of a session. A session without parts is returned unchanged; all homes refuse it as
    unknown.
    """
    if session is None:
        return None
    parts = dict(one.partition(":")[::2] for one in session.split(SEPARATOR))
    return parts.get(str(home), session)


def share(most: int | None, queues: Sized, of_all: Sized) -> int | None:
    """Return a home's share of the messages to reserve, in proportion to the home's queues. Rounded up, so that each
    home reserves at least one message.
    """
    return most and -(-most * len(queues) // max(1, len(of_all)))
