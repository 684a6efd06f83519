"""Rounds of a cluster with copies, and the judgement of the recorded history."""

from typing import Any

import pytest
from fuzzing.copies import run
from fuzzing.history import problems
from tests.etcd import needs_etcd

SENT: list[tuple[Any, ...]] = [("sent", "q", "p", number) for number in range(1, 4)]
STREAM: list[tuple[Any, ...]] = [("sent", "s", "p", number) for number in range(1, 4)]


@needs_etcd
@pytest.mark.slow
@pytest.mark.several
def test_nothing_confirmed_is_lost_whatever_happens_to_nodes() -> None:
    assert run(seconds=20, seed=8) == []


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([*SENT, ("confirmed", "q", "p", 1), ("got", "q", "p", 1, False)], ""),
        ([*SENT, ("confirmed", "q", "p", 1), ("got", "q", "p", 2, False)], "LOST"),
        ([*SENT, ("got", "q", "p", 4, False)], "invented"),
        ([*SENT, ("got", "q", "p", 1, False), ("got", "q", "p", 1, False)], "came twice"),
        ([*SENT, ("got", "q", "p", 1, False), ("got", "q", "p", 1, True)], ""),
        ([*SENT, ("got", "q", "p", 2, False), ("got", "q", "p", 1, False)], "out of order"),
        ([*STREAM, ("reads", "s", 0), ("read", "s", "p", 1, 0), ("read", "s", "p", 2, 2)], "gap"),
        ([*STREAM, ("reads", "s", 0), ("read", "s", "p", 1, 0), ("reads", "s", 0), ("read", "s", "p", 2, 0)], "values"),
        ([*STREAM, ("reads", "s", 0), ("read", "s", "p", 1, 0), ("read", "s", "p", 1, 1)], "at two offsets"),
        ([*STREAM, ("reads", "s", 0), ("read", "s", "p", 2, 0), ("read", "s", "p", 1, 1)], "out of order"),
        ([*STREAM, ("confirmed", "s", "p", 3), ("reads", "s", 0), ("read", "s", "p", 1, 0)], "LOST"),
    ],
)
def test_a_history_is_judged(history: list[tuple[Any, ...]], found: str) -> None:
    told = problems(history)
    assert (len(told), found in "".join(told)) == (int(bool(found)), True), told
