"""Warnings of moves of queues without progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jumpmq.broker.figures.values import HomeState
from jumpmq.broker.peers import MoveFigures
from jumpmq.http.warnings.warning import Warning

if TYPE_CHECKING:
    pass


def stalled_moves(states: Iterable[HomeState]) -> list[MoveFigures]:
    """Return the moves without progress for too long, one per queue. The report of the home that the queue leaves is
    preferred.
    """
    found: dict[tuple[str, str], MoveFigures] = {}
    moves = sorted((one for state in states for one in state.moves), key=lambda one: not one.leaves)
    for one in moves:
        if one.is_stalled:
            found.setdefault((one.vhost, one.name), one)
    return list(found.values())


def warning_of_move(move: MoveFigures) -> Warning:
    """Return the warning for a move without progress."""
    return Warning(
        "move-stands-still",
        "warning",
        "queue",
        move.vhost,
        move.name,
        f"The move of '{move.name}' has made no progress for {move.seconds:.0f} s: it waits for {move.waits_for}.",
        "New messages are kept, and delivered after the move. Homes that are down must return; consumers with "
        "messages of the queue must settle the messages, or close their connections.",
        move.name,
    )
