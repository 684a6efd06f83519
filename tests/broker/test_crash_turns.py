"""A killed broker has each message in one place: dead-lettering and transactions are atomic."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.crash_turns import Mover, Rejecter, declare
from tests.broker.traffic import Letter, Publisher, contents, kill_under, letter_of
from tests.wire import login

from jumpmq.testing import JumpMQ

ROUNDS = (0.5, 1.0, 0.7)
"""Approximate seconds of load before each kill."""
QUEUES = ["short", "worked", "moved", "dead"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JumpMQ]:
    with JumpMQ(tmp_path / "data") as running:
        yield running


@pytest.mark.slow
def test_each_message_is_in_one_place(broker: JumpMQ) -> None:
    with login(broker.port) as connection:
        declare(connection.channel())
    publishers = [Publisher(number, "all") for number in range(2)]
    confirmed: set[Letter] = set()
    for seconds in ROUNDS:
        publishers = [Publisher(one.number, "all", one.sent) for one in publishers]
        kill_under(broker, [*publishers, Rejecter(), Mover()], seconds)
        confirmed |= {(one.number, number) for one in publishers for number in one.confirmed}
        broker.start()
        found = contents(broker.port, QUEUES)
        places: dict[str, Counter[Letter]] = {"short": Counter(), "worked": Counter()}
        for queue, messages in found.items():
            for message in messages:
                origin = queue if queue in places else "worked"
                if queue == "dead":
                    origin = message.headers["x-first-death-queue"]
                places[origin][letter_of(message)] += 1
        for origin, letters in places.items():
            assert not confirmed - set(letters), f"lost from {origin}"
            assert set(letters.values()) <= {1}, f"twice of {origin}"
    assert len(confirmed) > 200
    assert found["moved"] and found["dead"]
