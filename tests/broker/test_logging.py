"""What clients call things does not forge lines of the log."""

import logging

import pytest
from tests.wire import ChannelClosed, ConnectionClosed, WireChannel, login

from jumpmq import RunningBroker


def test_names_have_no_line_ends_in_the_log(
    broker: RunningBroker, channel: WireChannel, caplog: pytest.LogCaptureFixture
) -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO jumpmq: all is well"
    with caplog.at_level(logging.INFO, logger="jumpmq"):
        exchange = b"\0\x28\0\x0a\0\0" + bytes([len(forged)]) + forged.encode() + b"\x06direct\x01" + bytes(4)
        channel.send_frame(1, exchange)
        with pytest.raises(ChannelClosed):
            channel.next()
        for user, vhost in ((forged, "/"), ("guest", forged)):
            with pytest.raises(ConnectionClosed):
                login(broker.port, user=user, vhost=vhost)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("all is well" in line for line in lines) >= 3
    assert not any("\n" in line for line in lines)
