"""Leadership returns to a stable preferred node, and at most hourly to a node with repeated losses."""

from itertools import pairwise

import pytest

from jumpmq.nodes.copies.succession import DAMPED, Returns
from jumpmq.replication.configuration import Configuration

HOUR = DAMPED
QUIET = 30.0


def led(node: str, epoch: int) -> Configuration:
    return Configuration(epoch, "log", "a", 3, 2, ("a", "b", "c"), epoch, f"{node}.1", ("a.1", "b.1", "c.1"))


def seen(*changes: tuple[float, str], asked: str = "", resigned: bool = False) -> Returns:
    """Return the state of a node that observed the given leaders, with times."""
    returns = Returns(QUIET)
    for number, ((_, before), (at, node)) in enumerate(pairwise([(0.0, "a"), *changes]), 1):
        returns.see(led(before, number), led(node, number + 1), asked, at, resigned=resigned)
    return returns


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ([(0, "b")], QUIET),
        ([(0, "b"), (60, "a"), (100, "b"), (200, "a"), (300, "b")], 300 + HOUR),
        ([(0, "b"), (60, "c"), (100, "b")], 100 + HOUR),
        ([(0, "b"), (60, "a"), (HOUR, "b"), (HOUR + 60, "a"), (2 * HOUR, "b")], 2 * HOUR + QUIET),
        ([(0, "b"), (1, "c"), (2, "b"), (3700, "a"), (3800, "b")], 3800 + HOUR),
        ([(0, "b"), (1, "c"), (2, "b"), (3700, "a"), (3701 + HOUR, "b")], 3701 + HOUR + QUIET),
    ],
)
def test_returns(changes: list[tuple[float, str]], due: float) -> None:
    returns, last = seen(*changes), changes[-1][0]
    assert not returns.is_due(last, due - 1) and returns.is_due(last, due)
    assert returns.is_restless(due - 1) == (due - last == HOUR) and not returns.is_restless(due + HOUR)


def test_what_operators_ask_for_is_no_takeover() -> None:
    assert seen((0, "b"), (60, "a"), (100, "b"), (200, "a"), (300, "b"), asked="b").is_due(300, 300 + QUIET)


def test_a_home_of_a_node_that_stops_in_order_is_given_away_and_returns_soon() -> None:
    assert seen((0, "b"), (60, "a"), (100, "b"), (200, "a"), (300, "b"), resigned=True).is_due(300, 300 + QUIET)
