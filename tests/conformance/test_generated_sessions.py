"""Random sessions have the same outcome on RabbitMQ and on JumpMQ; `python -m fuzzing.sessions` runs longer."""

import contextlib
from collections.abc import Iterator

import pytest
from fuzzing.sessions.pair import Pair
from fuzzing.sessions.run import hold
from hypothesis.errors import Flaky

from jumpmq.testing import JumpMQ, RabbitMQ
from jumpmq.testing.installations import Installation

pytestmark = pytest.mark.reference

SESSIONS, ROUNDS = 100, 3


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both brokers, for these sessions alone: policies of other tests would interfere."""
    if not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    if Installation.all()[0].version < (4, 0):
        pytest.skip("the reference is RabbitMQ 4.0.5; what differs before is compared case by case")
    with RabbitMQ() as reference, JumpMQ() as ours:
        yield Pair(reference, ours)


def test_random_sessions_come_to_the_same(pair: Pair) -> None:
    for number in range(ROUNDS):
        with contextlib.suppress(Flaky):  # a difference that does not recur is chance, and ends its round
            hold(pair, SESSIONS, number)
    assert pair.sessions - sum(pair.ended.values()) > 0.8 * ROUNDS * SESSIONS, dict(pair.ended)
