"""Priorities across a restart, and in the management API."""

from pathlib import Path

import pytest
import requests
from tests.wire import Basic, WireChannel, login

from jumpmq.testing import HOST, JumpMQ


def fill(channel: WireChannel, count: int, size: int) -> None:
    channel.confirm_select()
    for number in range(count):
        body = b"%0*d" % (size, number)
        channel.publish("", "q", body, Basic.Properties(priority=number % 10, delivery_mode=2))
    channel.wait_for_confirms()


def in_order(count: int) -> list[int]:
    return sorted(range(count), key=lambda number: (-(number % 10), number))


@pytest.mark.slow
def test_the_order_survives_a_restart(tmp_path: Path) -> None:
    with JumpMQ(tmp_path) as broker:
        channel = login(broker.port).channel()
        channel.queue("q", durable=True, exclusive=False, arguments={"x-max-priority": 9})
        channel.queue("quorum", durable=True, exclusive=False, arguments={"x-queue-type": "quorum"})
        fill(channel, 2000, 20)
        for priority in (0, 4, 5):
            channel.publish("", "quorum", b"%d" % priority, Basic.Properties(priority=priority))
        channel.wait_for_confirms()
        shown = requests.get(
            f"http://{HOST}:{broker.http_port}/api/queues/%2F/q", auth=("guest", "guest"), timeout=60
        ).json()
        assert shown["backing_queue_status"]["priority_lengths"] == {str(number): 200 for number in range(10)}
        taken = [channel.get("q") for _ in range(300)]
        assert [int(one.body) for one in taken if one] == in_order(2000)[:300]
        broker.stop()
        broker.start()
        channel = login(broker.port).channel()
        assert [int(body) for body in channel.bodies("q")] == in_order(2000)[300:]
        assert channel.bodies("quorum") == [b"5", b"0", b"4"]
