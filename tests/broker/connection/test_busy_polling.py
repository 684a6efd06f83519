"""The event loop stays awake for a client with immediate requests, and sleeps otherwise."""

import asyncio
import os
import time

import pytest
from tests.wire import WireChannel

from jumpmq.broker.connection.busy_polling import BusyPolling


def test_the_loop_sleeps_when_nobody_asks_again() -> None:
    async def stay_once() -> float:
        BusyPolling().begin()
        await asyncio.sleep(0.05)
        before = time.thread_time()
        await asyncio.sleep(0.3)
        return time.thread_time() - before

    assert asyncio.run(stay_once()) < 0.1


def test_the_loop_sleeps_when_the_question_has_come() -> None:
    async def rest() -> float:
        busy_polling = BusyPolling()
        before = time.thread_time()
        for _ in range(20):
            busy_polling.begin()
            busy_polling.until = 0.0
            await asyncio.sleep(0.01)
        return time.thread_time() - before

    assert asyncio.run(rest()) < 0.1


def test_the_loop_sleeps_where_others_want_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def others_run() -> None:
        looks.append(1)
        time.sleep(0.002)

    async def keep_asking() -> None:
        busy_polling = BusyPolling()
        for _ in range(20):
            busy_polling.begin()
            await asyncio.sleep(0.005)

    monkeypatch.setattr(os, "sched_yield", others_run)
    asyncio.run(keep_asking())
    assert len(looks) == 1


def test_timers_and_others_come_while_somebody_keeps_asking() -> None:
    async def keep_asking() -> None:
        busy_polling = BusyPolling()

        async def ask() -> None:
            while True:
                busy_polling.begin()
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        await asyncio.wait_for(asyncio.sleep(0.01), 30)
        asking.cancel()

    asyncio.run(keep_asking())


def test_each_question_of_a_client_in_lock_step_is_answered(channel: WireChannel) -> None:
    queue = channel.queue()
    channel.confirm_select()
    for number in range(1, 300):
        channel.connection.send(channel.publication("", queue, b"one"))
        assert channel.next().delivery_tag == number
        assert channel.ready(queue) == number
