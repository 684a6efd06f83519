"""Ring changes of an exchange with queues at several homes.

Messages of a moved key wait in the new queue for earlier messages in the old queue, for any home of the
publisher and of both queues.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.broker.consumer_groups.checker import Checker
from tests.broker.consumer_groups.members import Member
from tests.broker.consumer_groups.members import until as soon
from tests.http.api import API
from tests.nodes.management.running_homes import RunningHomes, running_homes

from jumpmq.nodes.log.follower import LogFollower
from jumpmq.topology.fences import LOOK_INTERVAL

HOMES = (1, 2, 3)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHomes]:
    """Three homes, and a hash exchange with a queue at each home."""
    with running_homes(3, tmp_path) as homes:
        with pika.BlockingConnection(pika.URLParameters(homes.url(1))) as connection:
            ordered = {"ordered-scaling": True}
            connection.channel().exchange_declare("orders", "x-consistent-hash", durable=True, arguments=ordered)
        for home in HOMES:
            bind(homes, home, f"q{home}")
        refused(homes, 1)
        yield homes


def refused(running: RunningHomes, home: int) -> None:
    """Request an invalid change: the deciding home refuses without an entry in the log."""
    url = pika.URLParameters(running.url(home))
    with pika.BlockingConnection(url) as connection, pytest.raises(ChannelClosedByBroker):
        connection.channel().queue_bind(f"q{home}", "missing")


def bind(running: RunningHomes, home: int, name: str, weight: str = "1") -> None:
    """Declare a queue at a home, and bind the queue there."""
    with pika.BlockingConnection(pika.URLParameters(running.url(home))) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "orders", weight)


def unbind(running: RunningHomes, home: int, name: str, weight: str = "1") -> None:
    with pika.BlockingConnection(pika.URLParameters(running.url(home))) as connection:
        connection.channel().queue_unbind(name, "orders", weight)


def member(running: RunningHomes, home: int, checker: Checker) -> Member:
    """A member with a connection to a home."""
    port = running.brokers[home - 1].port
    return Member(port, "orders", "g", f"m{home}", checker, prefetch=1000, arguments={"x-rebalance-delay": 50})


class Publisher:
    """Publishes messages at a home with keys named after the home, and waits for every confirm."""

    def __init__(self, running: RunningHomes, home: int, checker: Checker) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(running.url(home)))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._home = home
        self._checker = checker

    def publish(self, keys: int, count: int = 1) -> None:
        for _ in range(count):
            for number in range(keys):
                key = f"{self._home}:{number}"
                body = f"{key} {self._checker.publish(key)}".encode()
                self._channel.basic_publish("orders", key, body, pika.BasicProperties(delivery_mode=2))

    def close(self) -> None:
        self._connection.close()


def grown(running: RunningHomes, checker: Checker) -> Publisher:
    """Return a publisher; some of its messages wait in a queue ``new`` at the second home for earlier messages."""
    soon(lambda: not fences(running))  # barriers of earlier queues not yet known to be empty
    publisher = Publisher(running, 1, checker)
    publisher.publish(40, 2)
    bind(running, 2, "new")
    publisher.publish(40, 1)
    return publisher


def fences(running: RunningHomes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = API(running.endpoints.http_url).get("fences")
    return found


def test_messages_wait_for_those_at_other_homes(running: RunningHomes, caplog: pytest.LogCaptureFixture) -> None:
    checker = Checker()
    epochs = running.brokers[0].topology.epochs
    epochs.observe(epochs.draw() + 3_600_000_000)  # the home's clock is an hour ahead, and so are its owner epochs
    publishers = [Publisher(running, home, checker) for home in HOMES]
    with member(running, 1, checker) as one:
        for publisher in publishers:
            publisher.publish(20, 3)
        soon(lambda: len(one.held) == 180, one)
        bind(running, 2, "new")
        for publisher in publishers:
            publisher.publish(20, 2)
        soon(lambda: {found["source"] for found in fences(running)} >= {"q1", "q2", "q3"}, one)
        waiting = [found for found in fences(running) if found["queue"] == "new"]
        assert sum(found["remaining"] for found in waiting[:3]) >= 1
        asked = time.monotonic() + LOOK_INTERVAL + 0.5
        soon(lambda: time.monotonic() > asked, one)
        assert not any(queue == "new" for _, _, queue in one.held.values())
        assert {found["source"] for found in fences(running)} >= {"q1", "q2", "q3"}
        assert "has not made change" not in caplog.text
        soon(lambda: not checker.left, one, settle=True)
        soon(lambda: not fences(running), one)
        assert "new" in one.queues
    for publisher in publishers:
        publisher.close()
    checker.check()


def lag(running: RunningHomes, home: int, seconds: float) -> None:
    """Delay the changes of definitions at a home by so many seconds."""
    broker = running.brokers[home - 1]
    follower = broker.topology.log
    assert isinstance(follower, LogFollower)
    apply = follower._apply

    def later(message: dict[str, Any]) -> None:
        with broker.turns.turn():
            apply(message)

    follower._apply = lambda message: asyncio.get_running_loop().call_later(seconds, later, message)  # type: ignore


@pytest.mark.slow
@pytest.mark.parametrize("lagging", [0.0, 0.2])
def test_keys_stay_in_order_while_rings_change_under_load(running: RunningHomes, lagging: float) -> None:
    if lagging:
        lag(running, 3, lagging)
    checker, stopped, lock = Checker(), threading.Event(), threading.Lock()
    told = checker.publish

    def publish(key: str) -> int:
        with lock:
            return told(key)

    checker.publish = publish  # type: ignore[method-assign]

    def load(home: int) -> None:
        publisher = Publisher(running, home, checker)
        while not stopped.is_set():
            publisher.publish(10)
        publisher.close()

    threads = [threading.Thread(target=load, args=(home,)) for home in HOMES]
    members = [member(running, home, checker) for home in HOMES]
    for thread in threads:
        thread.start()

    def is_past(moment: float) -> bool:
        return time.monotonic() > moment

    chance, bound = random.Random(1), {f"q{home}": home for home in HOMES}
    for number in range(16):
        until = time.monotonic() + 0.15
        soon(partial(is_past, until), *members, settle=chance.random() < 0.7)
        home = chance.choice(HOMES)
        if number % 3 == 2:
            name = chance.choice(sorted(bound))
            unbind(running, home, name)
            del bound[name]
        else:
            bind(running, home, f"n{number}")
            bound[f"n{number}"] = home
    stopped.set()
    for thread in threads:
        thread.join()
    soon(lambda: not checker.left, *members, settle=True)
    for one in members:
        one.close()
    checker.check()
    assert sum(checker.published.values()) > 300


@pytest.mark.parametrize("home", [2, 3])
def test_they_wait_on_when_a_home_starts_again(running: RunningHomes, home: int) -> None:
    """Messages wait on after a restart of the home of the waiting queue, or of a queue waited for."""
    checker = Checker()
    publisher = grown(running, checker)
    before = {(found["source"], found["messages_held"]) for found in fences(running) if found["queue"] == "new"}
    assert {source for source, held in before if held} >= {"q1", "q2", "q3"}
    running.run(running.leave(home))
    if home == 3:
        assert [found for found in fences(running) if found["source"] == "q3"]
    running.run(running.come_back(home))
    soon(lambda: len(fences(running)) >= len(before))
    assert {(found["source"], found["messages_held"]) for found in fences(running) if found["queue"] == "new"} == before
    with member(running, 1, checker) as one:
        soon(lambda: not checker.left, one, settle=True)
        soon(lambda: not fences(running), one)
    publisher.close()
    checker.check()


def test_a_source_that_is_deleted_is_not_waited_for(running: RunningHomes) -> None:
    publisher = grown(running, Checker())
    assert any(found["source"] == "q3" for found in fences(running))
    with pika.BlockingConnection(pika.URLParameters(running.url(1))) as connection:
        connection.channel().queue_delete("q3")
    soon(lambda: not any(found["source"] == "q3" for found in fences(running)))
    publisher.close()


def test_an_operator_lifts_a_fence_of_another_home(running: RunningHomes) -> None:
    publisher = grown(running, Checker())
    api = API(running.endpoints.http_url)
    assert api.get("queues", "/", "new")["messages_fenced"]
    for source in ("q1", "q2", "q3"):
        answer = api.request("DELETE", "fences", "/", "new", source)
        assert answer.status_code == 204, (answer.text, fences(running))
    soon(lambda: not api.get("queues", "/", "new").get("messages_fenced"))
    publisher.close()
