"""Crashes at any call of the disk while batches are published and reserved over HTTP, as by Spark.

Answered requests hold. A batch is stored together with its number, or not at all. Acknowledged messages are
gone together with the reservation.
"""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.http.api import API
from tests.http.publishing import write
from tests.store.crashes import Recorder, SimulatedDisk

import jumpmq
from jumpmq.store import store

BATCHES, ROWS, TAKEN = 12, 3, 2
POINTS = 25
"""Number of crashes tried."""


class Answered(NamedTuple):
    """The last batch reported as published, and the last acknowledged reservation."""

    batch: int
    reservation: int


@pytest.mark.slow
def test_batches_and_reservations_are_whole_after_a_crash_at_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, disk = random.Random(), Recorder()
    answered = [Answered(-1, 0)]
    with monkeypatch.context() as patch:
        patch.setattr(store, "Files", lambda: disk)
        with jumpmq.running(data_dir=tmp_path / "data") as broker:
            index, begun = (tmp_path / "data" / "jumpmq.db").read_bytes(), len(disk.calls)
            api = API(broker.http_url)
            api.request("PUT", "queues", "/", "q", json={"durable": True})
            disk.note("committed", 0)

            def is_answered(batch: int, reservation: int) -> None:
                answered.append(Answered(batch, reservation))
                disk.note("committed", len(answered) - 1)

            for number in range(BATCHES):
                assert write(api, rows=ROWS, batch=number, persistent="true").status_code == 200
                is_answered(number, number)
                api.post("readers", "/", "g", "reserve", body={"queues": {"q": number or None}, "max_messages": TAKEN})
                api.post("readers", "/", "g", "commit", body={"queues": {"q": number + 1}})
                is_answered(number, number + 1)
            declared = next(place for place, call in enumerate(disk.calls) if call.name == "committed")
            calls = list(disk.calls)
    points = sorted(chance.sample(range(max(begun, declared) + 1, len(calls)), POINTS))
    image = SimulatedDisk(index)
    for place, call in enumerate(calls):
        image.take(call)
        if place in points:
            directory = tmp_path / str(place)
            image.crash(directory, chance)
            _look(directory, answered[image.committed])


def _look(directory: Path, answered: Answered) -> None:
    with jumpmq.running(data_dir=directory) as broker:
        api = API(broker.http_url)
        batch = api.get("messages", "/", "writers", "w")["batch"]
        batch = -1 if batch is None else batch
        assert answered.batch <= batch <= answered.batch + 1
        group = api.request("GET", "readers", "/", "g").json().get("queues", {})
        acknowledged = group["q"]["acknowledged"] if "q" in group else 0
        assert answered.reservation <= acknowledged <= answered.reservation + 1
        assert sum(api.counts("q")) == ROWS * (batch + 1) - TAKEN * acknowledged
