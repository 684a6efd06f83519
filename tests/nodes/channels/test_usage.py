"""Limits of users, counted over all homes together."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import declare, with_channel
from tests.nodes.homes import homes, in_loop, propose, until

from jumpmq.broker.security.accounts import Principal
from jumpmq.topology import SetUserLimit


@pytest.mark.slow
@in_loop
async def test_what_a_user_publishes_at_one_home_slows_it_at_the_others(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await declare(brokers[0], "q")
        await propose(brokers[0], SetUserLimit("guest", "max-publish-rate", 10))

        def publish(channel: Any) -> None:
            for _ in range(20):
                channel.basic_publish("", "q", b"")

        await with_channel(brokers[1], publish)
        rates = [broker._services.user_limits.rate(Principal("guest")) for broker in brokers]
        before = [rate.wait() for rate in rates if rate is not None]
        assert before[0] == before[2] == 0
        publishing = asyncio.create_task(with_channel(brokers[1], publish))
        await until(lambda: all(rate is not None and rate.wait() > 0 for rate in rates))
        await publishing
        counted = [rate.counted for rate in rates if rate is not None]
        assert counted == [0, 40, 0]
