"""A queue has a history before the first request for it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import pika
import pytest
from tests.http.api import API, publish
from tests.waiting import until

import jumpmq
from jumpmq.broker.figures.values import LEVELS_OF_QUEUES, OF_QUEUES
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http import past
from jumpmq.http.rates import Sample

COUNTS = (*OF_QUEUES, *LEVELS_OF_QUEUES)

T = TypeVar("T")


class All:
    """Slices without a limit: all items at once."""

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        for one in items:
            yield one


def sample(since: float, **values: int) -> Sample:
    return Sample(tuple(values.get(name, 0) for name in COUNTS), since)


def taken(kept: past.Past, *looks: dict[int, Sample]) -> None:
    for look in looks:
        kept._next = 0.0
        asyncio.run(kept.note(look, All()))


def test_queues_with_messages_are_kept_and_others_are_not() -> None:
    kept, now = past.Past("queue", 60.0), time.time()
    taken(kept, {1: sample(now, publish=7, ready=7), 2: sample(now), 3: sample(now, publish=5)})
    taken(kept, {1: sample(now, publish=1 << 33, ready=9), 2: sample(now)})
    place = past.COLUMNS["queue"].index("ready")
    assert [values[place] for _, values in kept.of(1)] == [7, 9]
    assert not list(kept.of(2)) and not list(kept.of(3)), "idle, and gone"


def test_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(past.MOST, "queue", 2)
    kept, now = past.Past("queue", 60.0, 3), time.time()
    names = {"ready": 1}
    quiet = sample(0.0, **names)
    for _ in range(5):
        taken(kept, {1: quiet, 2: sample(now, **names), 3: sample(now, **names)})
    assert [len(list(kept.of(number))) for number in (1, 2, 3)] == [0, 3, 3], "what changed last stays"


def test_the_history_of_a_queue_begins_before_it_was_asked_for() -> None:
    at_each_reading = BrokerTiming(past_sample=0.0)
    with (
        jumpmq.running(timing=at_each_reading) as broker,
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection,
    ):
        channel, api = connection.channel(), API(broker.http_url)
        for number in range(10):  # eight of them have a history without a request
            channel.queue_declare(f"fuller-{number}")
            for _ in range(20):
                channel.basic_publish("", f"fuller-{number}", b"x")
        channel.queue_declare("quiet")
        publish(channel, "quiet", [b"x"] * 3)
        looked = api.get("history")["at"]
        until(lambda: len(api.get("history")["at"]) > len(looked) + 3)
        shown = api.get("history", "queues", "/", "quiet", seconds=3600)
        assert shown["ready"].count(3) > 1
        (one,) = api.get("connections")
        columns = {"exchanges": ("/", ""), "connections": (one["name"],), "channels": (f"{one['name']} (1)",)}
        for kind, name in columns.items():
            past_of = api.get("history", kind, *[part or "amq.default" for part in name], seconds=3600)
            assert len(past_of["at"]) > 2, kind
        assert api.get("history", "connections", one["name"], seconds=3600)["recv_oct"][0] is not None
