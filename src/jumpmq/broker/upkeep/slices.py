"""Time slices: long work is done a few milliseconds at a time, and connections are served between two slices.

An event loop calls all ready callbacks before it polls its sockets again. If ten tasks did a slice of work in the same
iteration, a delivery would wait for ten slices. So each iteration of the loop has one slice, and waiting tasks get
slices in turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.upkeep.garbage import young_generation
from jumpmq.topology import Pending

SLICE = 0.002
"""Seconds of work in a slice. A longer step delays deliveries."""

T = TypeVar("T")


class Slices:
    """The slices of an event loop's time."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()  # tasks that wait for a slice, in order
        self._is_due = False  # True if the next slice is scheduled

    async def next(self) -> None:
        """Wait for a slice. The slice lasts until the caller waits for anything, or requests a further slice."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give slices to waiters. The current waiter works in the next round, before the next call."""
        young_generation.limit()
        self._is_due = False
        while self._waiting and not self._is_due:
            turn = self._waiting.popleft()
            if not turn.done():  # the waiting task may have been cancelled
                turn.set_result(None)
                self._is_due = True
                loop.call_soon(self._give, loop)

    async def between(self, steps: Iterator[None]) -> Any:
        """Take steps of some milliseconds, each in a slice; return the steps' result."""
        try:
            while True:
                next(steps)
                await self.next()
        except StopIteration as end:
            return end.value

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield items, in as many slices as needed to make and to use the items."""
        until = 0.0
        for item in items:
            if time.perf_counter() >= until:
                await self.next()
                until = time.perf_counter() + SLICE
            yield item

    async def forget(self, *kept: list[Any] | dict[Any, Any]) -> None:
        """Empty lists and dictionaries, in as many slices as needed to free the contents held only here."""
        async for _ in self.through(_emptied(kept)):
            pass


def _emptied(kept: Iterable[list[Any] | dict[Any, Any]]) -> Iterator[None]:
    for one in kept:
        take: Callable[[], Any] = one.pop if isinstance(one, list) else one.popitem
        while one:
            take()
            yield


class Sliced(Protocol):
    """Source of units of work and slices: the broker."""

    turns: Turns
    slices: Slices


async def in_turns(broker: Sliced, steps: Iterator[Pending | None]) -> None:
    """Take steps to change the broker, one unit of work per slice; wait only for slices, and for changes of definitions
    proposed by the steps."""
    going_on = True
    while going_on:
        proposed = None
        with broker.turns.turn():
            end = time.perf_counter() + SLICE
            for proposed in steps:
                if time.perf_counter() > end or not (proposed is None or proposed.decided):
                    break
            else:
                going_on = False
        if proposed is not None:
            await decided(proposed)
        if going_on:
            await broker.slices.next()


async def decided(pending: Pending) -> None:
    """Wait until a proposed change is accepted or refused."""
    if not pending.decided:
        known = asyncio.Event()
        pending.then(known.set)
        await known.wait()
