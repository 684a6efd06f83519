"""A transaction that publishes to a stream never acknowledges without the published message."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.commit.failing import FORGETS, PERSISTENT, Faulty, publish
from tests.waiting import until
from tests.wire import Basic, Tx, WireChannel, login

REFUSES = """
from jumpmq.store.stream_log import StreamLog
lay_out = StreamLog.lay_out
def fail(log, messages):
    if faulty():
        raise OSError(5, "Input/output error")
    return lay_out(log, messages)
StreamLog.lay_out = fail
"""


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Faulty]:
    """A broker unable to write to streams while the fault file exists; tests may select a different fault."""
    with Faulty(tmp_path, getattr(request, "param", REFUSES)) as broker:
        for queue in ("stream", "classic"):
            publish(broker, queue, b"before")
        yield broker


def move(broker: Faulty, until_refused: bool = True) -> WireChannel:
    """Start the fault and a transaction that acknowledges in a queue and publishes to a stream."""
    broker.fault.touch()
    channel = login(broker.port).channel()
    channel.select_transactions()
    taken = channel.get("classic", no_ack=False)
    assert taken is not None
    channel.publish("", "stream", taken.body, PERSISTENT)
    channel.send(Basic.Ack(taken.method.delivery_tag))
    channel.send(Tx.Commit())
    if until_refused:
        until(lambda: "cannot write to" in broker.log.read_text())
    return channel


@pytest.mark.parametrize("broker", [FORGETS], indirect=True)
def test_a_kill_before_the_log_is_written_leaves_nothing_in_the_stream(broker: Faulty) -> None:
    """A kill before the log is written leaves no row in the stream, so that a repetition makes no duplicate."""
    assert move(broker, until_refused=False).is_silent(0.7)
    broker.fault.unlink()
    broker.kill()
    broker.start()
    channel = login(broker.port).channel()
    assert (channel.bodies("classic"), channel.stream_bodies("stream")) == ([b"before"], [b"before"])


@pytest.mark.slow
@pytest.mark.parametrize("end", [Faulty.kill, Faulty.stop], ids=["killed", "stopped"])
def test_an_end_before_the_message_is_on_disk_leaves_both(broker: Faulty, end: Callable[[Faulty], object]) -> None:
    channel = move(broker)
    assert channel.is_silent(0.7)  # acknowledgements alone would be on disk by now
    end(broker)
    broker.fault.unlink()
    broker.start()
    channel = login(broker.port).channel()
    found = channel.bodies("classic")
    assert (found, channel.ready("stream")) == ([b"before"], 1)


def test_what_waited_for_the_message_is_done_when_it_is_on_disk(broker: Faulty) -> None:
    channel = move(broker)
    later = login(broker.port).channel()
    later.publish("", "classic", b"later", PERSISTENT)
    broker.fault.unlink()
    assert isinstance(channel.next(), Tx.CommitOk)
    broker.kill()
    broker.start()
    channel = login(broker.port).channel()
    assert b"before" not in channel.bodies("classic")
    assert channel.ready("stream") == 2
