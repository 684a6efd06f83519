"""Figures of queues on their way, as values: apart, as a process alone loads nothing else of links."""

from typing import NamedTuple


class MoveFigures(NamedTuple):
    """A queue on its way from home to home, as one of the two knows it.

    Attributes:
        vhost, name: the queue.
        leaves: whether it leaves this home; else it comes here.
        waits_for: what has to happen next.
        seconds: since the last step forward.
        stands_still: whether that is too long.
    """

    vhost: str
    name: str
    leaves: bool
    waits_for: str
    seconds: float
    stands_still: bool
