"""Periodic work without tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jumpmq.broker.upkeep.ticks import Ticks

INTERVAL = 0.01


def test_an_exception_is_logged_and_the_next_call_comes_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    async def run() -> None:
        twice = asyncio.Event()

        def work() -> None:
            calls.append(len(calls))
            if len(calls) == 1:
                raise ValueError("no such queue")
            twice.set()

        ticks = Ticks(INTERVAL, work)
        await asyncio.wait_for(twice.wait(), 10.0)
        ticks.cancel()

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(run())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["no such queue"]


def test_work_that_cancels_is_not_called_again() -> None:
    calls: list[int] = []

    async def run() -> None:
        def work() -> None:
            calls.append(len(calls))
            ticks.cancel()

        ticks = Ticks(INTERVAL, work)
        await asyncio.sleep(20 * INTERVAL)

    asyncio.run(run())
    assert calls == [0]
