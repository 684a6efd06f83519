"""Stores of older versions open unchanged: every message and row is there, once, and more can be written."""

from pathlib import Path

import pytest
from tests.store.old_stores import old_store
from tests.wire import WireChannel, login

from jumpmq.store import inspection
from jumpmq.testing import JumpMQ


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_a_store_of_0_2_is_opened_as_it_is(tmp_path: Path, state: str) -> None:
    data = old_store(state, tmp_path / "data")
    assert [one for one in inspection.check(data) if "lost" in one or "missing" in one] == []
    with JumpMQ(data) as broker:
        for again in range(2):
            channel = login(broker.port).channel()
            if not again:
                bodies = [body.split()[0] for body in channel.bodies("orders")]
                assert bodies == [b"%d" % number for number in range(64)]
            found = rows(channel, "events")
            assert found == list(range(found[0], 64 + again)) and found[0] <= 45
            assert rows(channel, "empty") == list(range(again))
            channel.confirm_select()
            for stream, row in (("events", 64 + again), ("empty", again)):
                channel.publish("", stream, b"%d" % row)
            channel.wait_for_confirms()
            broker.kill() if again else broker.stop()
            assert list(inspection.check(data)) == [] or again
            broker.start()
        assert "lost" not in broker.log.read_text()


def rows(channel: WireChannel, stream: str) -> list[int]:
    return [int(body.split()[0]) for body in channel.stream_bodies(stream)]
