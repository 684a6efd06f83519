"""Answers to concurrent clients of several homes could have come from one broker, under any failure.

The clients declare, delete, bind and read the same few queues at once. The logs are the logs of workers and
of a cluster, under the simulations that schedule all events.
"""

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.nodes.log.schedules import Schedule, steps_of
from tests.nodes.log.simulated_clients import (
    NODES_CHOICES,
    WORKERS_CHOICES,
    Queue,
    bind,
    declare,
    delete,
    look,
    play_nodes,
    play_workers,
)
from tests.topology.linearizability import Does, Operation, is_linearizable

RACE: list[tuple[Any, ...]] = [("use", home, kind, "q0") for kind in (0, 1, 3, 2, 5) for home in (1, 2, 3)]
"""All homes make the same requests before the first answer."""


@given(st.lists(steps_of(NODES_CHOICES), max_size=100))
@example(RACE)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nodes_answer_as_one_broker(steps: Schedule) -> None:
    play_nodes(steps)


@given(st.lists(steps_of(WORKERS_CHOICES), max_size=80))
@example(RACE)
@example([("use", 1, 1, "q1"), ("use", 1, 0, "q1"), ("use", 2, 5, "q1")])  # the second change is refused for the first
@example(
    [("use", 1, 1, "q0"), ("use", 2, 3, "q1"), ("arrive", 2, False), ("use", 1, 1, "q1"), ("cut", 2)]
)  # asks again
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_workers_answer_as_one_broker(steps: Schedule) -> None:
    play_workers(steps)


def history(*operations: tuple[Does, int, int | None, Any]) -> list[Operation]:
    """Return operations from tuples of effect, beginning, end and answer."""
    return [Operation("", does, *rest) for does, *rest in operations]


FIRST, SECOND = partial(declare, "a", 1), partial(declare, "b", 2)


@pytest.mark.parametrize(
    ("operations", "is_right"),
    [
        ([(FIRST, 1, 2, "ok"), (SECOND, 3, 4, "PreconditionFailed"), (look, 5, 6, Queue("a", 1, False))], True),
        ([(FIRST, 1, 4, "ok"), (SECOND, 2, 3, "ok")], False),  # either has to be refused
        ([(FIRST, 1, 4, "PreconditionFailed"), (SECOND, 2, 3, "ok")], True),
        ([(FIRST, 1, 2, "PreconditionFailed"), (SECOND, 3, 4, "ok")], False),  # the second came later
        ([(FIRST, 1, 2, "ok"), (look, 3, 4, None)], False),  # the declared queue is missing
        ([(FIRST, 1, None, None), (look, 2, 3, None)], True),  # the queue was never made
        ([(FIRST, 1, None, None), (look, 2, 3, Queue("a", 1, False))], True),  # the queue was made, before the answer
        ([(FIRST, 1, None, None), (look, 2, 3, Queue("a", 1, False)), (look, 4, 5, None)], False),
        ([(FIRST, 1, 2, "ok"), (partial(delete, "a"), 3, 4, "ok"), (bind, 5, 6, "ok")], False),
    ],
)
def test_the_checker_tells_right_from_wrong(
    operations: list[tuple[Does, int, int | None, Any]], is_right: bool
) -> None:
    assert is_linearizable(history(*operations), None) is is_right
