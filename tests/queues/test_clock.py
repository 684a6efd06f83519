"""Ages of wall-clock timestamps stay right, however the wall clock is set meanwhile."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queues.consumers import message

from jumpmq.queues import clock
from jumpmq.queues.base import QueueContext
from jumpmq.queues.clock import Stamps, until_tick
from jumpmq.queues.stream import Stream
from jumpmq.store.stream_files import StreamFiles

HOUR = 3600.0


class Clocks:
    """A settable wall clock and a monotonic clock."""

    def __init__(self) -> None:
        self.steady, self.ahead = 50_000.0, 1_700_000_000.0
        self.stamps = Stamps(self.wall, lambda: self.steady)

    def wall(self) -> float:
        return self.steady + self.ahead


def test_without_a_jump_the_wall_clock_tells() -> None:
    clocks = Clocks()
    clocks.steady += 10 * HOUR
    assert clocks.stamps.oldest(HOUR) == clocks.wall() - HOUR


def test_three_hours_forth_make_nothing_older_and_are_forgotten_after_its_age() -> None:
    clocks = Clocks()
    clocks.steady += HOUR
    written = clocks.wall()
    clocks.stamps.oldest(HOUR)
    clocks.ahead += 3 * HOUR
    clocks.steady += HOUR / 2
    assert clocks.stamps.oldest(HOUR) < written
    clocks.steady += HOUR / 2 + 1
    assert written < clocks.stamps.oldest(HOUR) <= clocks.wall() - HOUR
    clocks.steady += HOUR
    assert clocks.stamps.oldest(HOUR) == clocks.wall() - HOUR


def test_three_hours_back_make_nothing_older_either() -> None:
    clocks = Clocks()
    clocks.stamps.oldest(HOUR)
    clocks.ahead -= 3 * HOUR
    written = clocks.wall()
    clocks.steady += HOUR / 2
    assert clocks.stamps.oldest(HOUR) <= written
    clocks.steady += HOUR
    assert clocks.stamps.oldest(HOUR) == clocks.wall() - HOUR


@pytest.mark.parametrize("hours", [3, -3])
def test_a_stream_keeps_what_is_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    clocks = Clocks()
    monkeypatch.setattr(clock, "stamps", clocks.stamps)
    arguments = {"x-max-age": "1h", "x-stream-max-segment-size-bytes": 1000}
    with closing(StreamFiles(tmp_path)) as files:
        stream = Stream("/", "s", id=1, durable=True, arguments=arguments, context=QueueContext(streams=files))

        def publish(count: int) -> None:
            for _ in range(count):
                one = message(bytes(2000))
                one.published_at = clocks.wall()
                stream.push([one])
                files.flush()
            stream.maintain(clock.now())

        publish(3)
        clocks.ahead += hours * HOUR
        publish(3)
        assert stream.ready_count == 6
        clocks.steady += HOUR / 2
        publish(1)
        assert stream.ready_count == 7
        clocks.steady += HOUR / 2 + 1
        publish(1)
        assert stream.ready_count == (2 if hours > 0 else 8)  # messages with timestamps in the future go later
        clocks.steady += 3 * HOUR
        publish(1)
        assert stream.ready_count == 1


# Events: seconds pass, the wall clock is set, the age limit is read.
EVENTS = st.lists(
    st.one_of(st.floats(0.1, 2 * HOUR), st.integers(-5, 5).map(lambda hours: ("set", hours * HOUR)), st.just("ask"))
)


@given(events=EVENTS, age=st.floats(1.0, 3 * HOUR))
def test_nothing_younger_is_ever_called_older(events: list[object], age: float) -> None:
    clocks, written = Clocks(), []
    for event in [*events, "ask"]:
        written.append((clocks.steady, clocks.wall()))
        if isinstance(event, float):
            clocks.steady += event
        elif isinstance(event, tuple):
            clocks.stamps.look()
            clocks.ahead += event[1]
            clocks.stamps.look()
        else:
            earliest = clocks.stamps.oldest(age)
            young = [stamp for at, stamp in written if at >= clocks.steady - age]
            assert all(stamp >= earliest - 1e-3 for stamp in young)


@given(st.floats(0, 1e6), st.sampled_from([0.1, 0.2, 0.25, 1.0]), st.floats(-0.004, 0.02))
def test_ticks_of_a_process_come_together_and_late_ones_do_not_shift(
    begin: float, interval: float, late: float
) -> None:
    first = begin + until_tick(interval, begin)
    assert interval / 2 <= first - begin <= 1.5 * interval
    then = first + late * interval
    assert then + until_tick(interval, then) == pytest.approx(first + interval, abs=1e-6)
    other = first + until_tick(4 * interval, first)
    assert (other - first) / interval == pytest.approx(round((other - first) / interval), abs=1e-6)
