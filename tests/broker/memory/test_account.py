"""The memory accounted for messages is the memory in use, for messages of all shapes."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Serving, serving
from tests.http.api import API
from tests.wire import Basic, login

OCTETS = 80_000_000
"""Octets published of each shape, in at most ``MOST`` messages."""
MOST = 30_000
ALLOWED = 30_000_000
"""Allowed difference in octets; a tenth, if higher."""
SHAPES = 3


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serving]:
    """A separate broker with measured memory, free of other tests' leftovers."""
    with serving(tmp_path, "--memory-limit", "2GB") as running:
        yield running


def resident(serve: Serving) -> int:
    return int(Path(f"/proc/{serve.process.pid}/statm").read_text().split()[1]) * 4096


def counted(serve: Serving) -> int:
    api = API(serve.http_url)
    kinds: dict[str, int] = api.get("nodes", api.get("nodes")[0]["name"], "memory")["memory"]
    return sum(kinds[kind] for kind in ("ready", "unacknowledged", "staged", "unsent"))


@pytest.mark.parametrize("number", range(SHAPES))
def test_the_account_and_the_resident_size_agree(serve: Serving, number: int) -> None:
    seed = time.time_ns() + number
    draw = random.Random(seed)
    body, header, key = (int(10 ** draw.uniform(0, most)) for most in (5.0, 4.9, 2.4))
    queues, mode, taken = draw.choice((1, 7, 100)), draw.choice((1, 2)), draw.random() < 0.3
    shape = f"seed {seed}: body {body}, header {header}, key {key}, queues {queues}, mode {mode}, delivered {taken}"
    count = min(OCTETS // (body + header + key + 300), MOST)
    with login(serve.port) as connection:
        channel = connection.channel()
        exchange = channel.exchange(f"shape-{number}", "topic")
        names = [channel.queue(f"shape-{number}-{place}", exclusive=False) for place in range(queues)]
        for place, name in enumerate(names):
            channel.bind(name, exchange, f"{place}.#")
        idle = resident(serve) - counted(serve)
        for sent in range(count):
            properties = Basic.Properties(delivery_mode=mode, headers={"n": sent, "h": "h" * header})
            prefix = f"{sent % queues}."
            channel.publish(exchange, prefix + "k" * min(key, 250 - len(prefix)), bytes(body), properties)
        assert sum(channel.ready(name) for name in names) == count
        if taken:
            holder = connection.channel()
            for name in names:
                holder.consume(name)
            holder.take(count)
        octets = counted(serve)
        beside = resident(serve) - idle - octets
        assert abs(beside) <= max(ALLOWED, octets // 10), f"{shape}: {octets} counted, {beside} more resident"
