"""A sudden end of traffic is reported; a slow end, or the end of little traffic, is not."""

from collections.abc import Iterable

import pytest

from jumpmq.broker.timing import BROKER_TIMING
from jumpmq.http.warnings.outages import TOLD, Outages


def told(outages: Outages) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in outages.warnings()]


def after(rates: Iterable[int], connections: Iterable[int]) -> tuple[Outages, int, float]:
    """State after a message rate and a number of connections per second."""
    outages, published, now = Outages(BROKER_TIMING), 0, 1000.0
    for rate, count in zip(rates, connections, strict=True):
        published += rate
        now += 1
        outages.add(published, count, now)
    return outages, published, now


def test_publishing_that_stops_is_told_until_it_goes_on() -> None:
    outages, published, now = after([570] * 70 + [0] * 20, [9] * 90)
    ((kind, text),) = told(outages)
    assert (kind, text[:34]) == ("publishing-stopped", "Publishing fell from 570/s to 0 at")
    outages.add(published + 1, 9, now + 1)
    assert not told(outages)


def test_clients_that_all_went_at_once_are_one_cause() -> None:
    outages, published, now = after([570] * 70 + [0] * 20, [44] * 70 + [1] * 20)
    ((kind, text),) = told(outages)
    assert kind == "clients-gone" and text.startswith("43 of 44 connections closed at once, at ")
    assert text.endswith("Publishing fell from 570/s to 0.")
    for second in range(30):
        outages.add(published, 40, now + 1 + second)
    assert [kind for kind, _ in told(outages)] == ["publishing-stopped"]


@pytest.mark.parametrize(
    ("rates", "connections"),
    [
        ([3] * 70 + [0] * 20, [9] * 90),  # little
        ([570] * 10 + [0] * 80, [9] * 90),  # a short burst
        ([570, *[0] * 29] * 3, [9] * 90),  # a batch now and then
        ([570] * 90, [9] * 90),
        ([0] * 90, [max(1, 44 - second // 3) for second in range(90)]),  # one by one
        ([0] * 90, [3] * 70 + [0] * 20),  # few
    ],
)
def test_what_is_usual_is_not_told(rates: list[int], connections: list[int]) -> None:
    assert not told(after(rates, connections)[0])


def test_it_is_forgotten_after_a_while() -> None:
    outages, published, now = after([570] * 70 + [0] * 20, [9] * 90)
    outages.add(published, 9, now + TOLD + 1)
    assert not told(outages)
