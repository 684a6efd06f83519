"""Heartbeats in both directions."""

import time

import pytest
from tests.waiting import punctually
from tests.wire import HEARTBEAT, Hangup, frame, login

from jumpmq.testing import BrokerProcess


def test_the_broker_sends_two_an_interval(broker: BrokerProcess) -> None:
    def trial() -> None:
        frames = []
        with login(broker.port, heartbeat=1) as connection:
            began = time.monotonic()
            while time.monotonic() < began + 2.2:
                connection.send(frame(HEARTBEAT, 0, b""))
                frames.append(connection.read_frame(1.5))
        assert set(frames) == {(HEARTBEAT, 0, b"")}
        assert 2 <= len(frames) <= 6

    punctually(3, trial)


def test_a_silent_client_is_cut(broker: BrokerProcess) -> None:
    began = time.monotonic()
    with login(broker.port, heartbeat=1) as connection, pytest.raises(Hangup):
        while True:
            connection.read_frame()
    assert time.monotonic() - began > 1


def test_a_client_may_do_without(broker: BrokerProcess) -> None:
    with login(broker.port, heartbeat=0) as connection, pytest.raises(TimeoutError):
        connection.read_frame(1.5)
