"""A reader group over HTTP reads each message once, however often the broker is killed meanwhile.

The reader works like a Spark query whose sink knows the numbers of written batches: it reserves, reads the
reservation, and acknowledges; after a kill it repeats uncertain reads.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from tests.broker.crash_turns import Mover, Rejecter, declare
from tests.broker.traffic import Client, Letter, Publisher, kill_under
from tests.http.api import API
from tests.wire import login

from jumpmq.testing import HOST, JumpMQ

ROUNDS = (0.7, 1.2, 0.9)
"""Approximate seconds of load before each kill."""
QUEUE = "read"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JumpMQ]:
    with JumpMQ(tmp_path / "data") as running:
        yield running


def letters(bodies: list[bytes]) -> list[Letter]:
    return [(int(publisher), int(number)) for publisher, number, _ in map(bytes.split, bodies)]


class Reader(Client):
    """The only reader of the group.

    Attributes:
        batches: bodies of each reservation read, by number.
        offset: the last known reservation.
        acknowledged: the last reservation with an answered acknowledgement.
        again: number of batches read again after a kill.
    """

    def __init__(self, before: "Reader | None" = None) -> None:
        super().__init__()
        self.batches: dict[int, list[bytes]] = {} if before is None else before.batches
        self.offset: int = 0 if before is None else before.offset
        self.acknowledged: int = 0 if before is None else before.acknowledged
        self.again: int = 0 if before is None else before.again
        self.wrong: list[str] = []
        self.http_port = 0
        self.until_empty = False

    def run(self) -> None:
        self.api = API(f"http://{HOST}:{self.http_port}")
        try:
            self._resume()
            while self._step() or not self.until_empty:
                pass
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            return
        except AssertionError as error:
            self.wrong.append(str(error))

    def _resume(self) -> None:
        if self.offset > self.acknowledged:
            answer = self._messages()
            if answer.status_code == 410:  # the broker has taken the acknowledgement, and its answer was lost
                assert self.offset in self.batches, "a batch is gone that was never read"
                self.acknowledged = self.offset
            else:
                self._take(answer)
                self._acknowledge()

    def _step(self) -> bool:
        """Read a batch; return False without messages."""
        wish = {"queues": {QUEUE: self.offset or None}, "max_messages": 50}
        found = self.api.post("readers", "/", "g", "reserve", body=wish)["queues"][QUEUE]
        if not found["messages"]:
            time.sleep(0.01)
            return False
        self.offset = found["offset"]
        self._take(self._messages())
        self._acknowledge()
        return True

    def _messages(self) -> requests.Response:
        query = {"upto": self.offset, "after": self.acknowledged}
        return self.api.request("GET", "readers", "/", "g", "queues", QUEUE, "messages", params=query)

    def _take(self, answer: requests.Response) -> None:
        assert answer.status_code == 200, answer.text
        bodies = pa.ipc.open_stream(answer.content).read_all()["body"].to_pylist()
        if self.offset in self.batches:
            self.again += 1
            assert self.batches[self.offset] == bodies, "other rows when it is read again"
        self.batches[self.offset] = bodies

    def _acknowledge(self) -> None:
        self.api.post("readers", "/", "g", "commit", body={"queues": {QUEUE: self.offset}})
        self.acknowledged = self.offset


@pytest.mark.slow
def test_each_message_is_read_once(broker: JumpMQ) -> None:
    with login(broker.port) as connection:
        channel = connection.channel()
        declare(channel)
        channel.queue(QUEUE, durable=True, exclusive=False)
        channel.bind(QUEUE, "all", "#")
    publishers = [Publisher(number, "all") for number in range(2)]
    confirmed: set[Letter] = set()
    reader = Reader()
    for seconds in ROUNDS:
        publishers = [Publisher(one.number, "all", one.sent) for one in publishers]
        reader = Reader(reader)
        reader.http_port = broker.http_port
        kill_under(broker, [*publishers, reader, Rejecter(), Mover()], seconds)
        assert not reader.wrong
        confirmed |= {(one.number, number) for one in publishers for number in one.confirmed}
        broker.start()
    reader = Reader(reader)
    reader.http_port, reader.until_empty = broker.http_port, True
    reader.run()
    assert not reader.wrong
    seen = Counter(letters([body for bodies in reader.batches.values() for body in bodies]))
    assert set(seen.values()) == {1}
    assert confirmed <= set(seen)
    assert len(confirmed) > 200 and len(reader.batches) > 3
