"""Owner epochs of a moved queue continue above the epochs of its old home, for any difference of clocks."""

from pathlib import Path
from typing import Any

import pika
from tests.brokers import declare, with_channel
from tests.nodes.homes import config_of, homes, in_loop, started, stopped, until
from tests.nodes.moves.moves import is_over, move

from jumpmq.broker import Broker

HOUR = 3_600_000_000


async def epoch_at(broker: Broker) -> int:
    """Return the epoch of a delivery of queue ``q``, and settle the delivery."""

    def work(channel: Any) -> int:
        channel.basic_publish("", "q", b"", pika.BasicProperties(delivery_mode=2))
        _, properties, _ = next(channel.consume("q", inactivity_timeout=60, auto_ack=True))
        return int(properties.headers["x-owner-epoch"])

    return int(await with_channel(broker, work))


@in_loop
async def test_a_queue_that_moves_goes_on_with_higher_numbers(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        first, second = brokers
        await declare(first, "q", {"x-single-active-consumer": True})
        first.topology.epochs.observe(first.topology.epochs.draw() + HOUR)  # the home's clock is an hour ahead
        there = [await epoch_at(first), await epoch_at(second)]
        await move(first, "q", 2)
        await until(lambda: is_over(*brokers))
        here = [await epoch_at(second), await epoch_at(first)]
        assert there + here == sorted({*there, *here})
        await stopped(second)
        again = await started(config_of(2, 2, tmp_path))
        assert await epoch_at(again) > here[-1]
