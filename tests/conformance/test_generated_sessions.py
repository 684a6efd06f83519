"""Random sessions come to the same on RabbitMQ and on JumpMQ; `python -m fuzzing.sessions` looks for longer."""

from collections.abc import Iterator

import pytest
from benchmarks.brokers import JumpMQ, RabbitMQ
from fuzzing.sessions.pair import Pair
from fuzzing.sessions.run import hold

SESSIONS = 1000


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both brokers, for these sessions alone: other tests' policies would take part."""
    if not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    with RabbitMQ() as reference, JumpMQ() as ours:
        yield Pair(reference.port, ours.port)


@pytest.mark.timeout(600)
def test_random_sessions_come_to_the_same(pair: Pair) -> None:
    hold(pair, SESSIONS, 1)
    compared = pair.sessions - sum(pair.ended.values())
    assert compared > 0.9 * SESSIONS, f"too many could not be compared to their end: {dict(pair.ended)}"
