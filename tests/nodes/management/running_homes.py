"""Several homes and their management port, in one event loop in a thread, for tests of the port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.nodes.fixed_directory import FixedDirectory
from tests.nodes.homes import NODES, config_of, started, stopped
from tests.waiting import PATIENCE

from jumpmq.broker import Broker
from jumpmq.nodes.management.directory import HomesDirectory
from jumpmq.nodes.management.management import managed, managed_node
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.timing import TIMING
from jumpmq.serving.server import RunningBroker

Join = Callable[[int, AsyncExitStack], Awaitable[Broker]]
"""Function that starts a home and pushes the stop to the stack."""


class RunningHomes:
    """Running homes.

    Attributes:
        brokers: the homes, the first first.
        endpoints: the management port of the first, and the AMQP port of the last: what is declared by AMQP is not
            where requests are answered.
    """

    def __init__(
        self, brokers: list[Broker], stacks: list[AsyncExitStack], join: Join, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.brokers = brokers
        self._stacks = stacks
        self._join = join
        self._loop = loop
        first, last = brokers[0], brokers[-1]
        self.endpoints = RunningBroker(
            first.node, "127.0.0.1", last.port, first.listening.port_of("http"), first.config.data_dir, 0, 0, None
        )

    async def leave(self, home: int) -> None:
        """Stop a home."""
        await self._stacks[home - 1].aclose()

    async def come_back(self, home: int) -> None:
        """Restart a stopped home."""
        self.brokers[home - 1] = await self._join(home, self._stacks[home - 1])

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the homes' event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def url(self, home: int) -> str:
        """Return the AMQP URL of a home."""
        return f"amqp://guest:guest@127.0.0.1:{self.brokers[home - 1].port}/%2F"


@contextmanager
def running_homes(count: int, directory: Path, **settings: Any) -> Iterator[RunningHomes]:
    """Runs so many homes for as long as the block lasts."""
    with _running(lambda home, stack: _join(home, count, directory, settings, stack), count) as found:
        yield found


@contextmanager
def running_nodes(count: int, directory: Path, **settings: Any) -> Iterator[RunningHomes]:
    """Run so many nodes of a cluster, each with a home and a management port."""
    known = FixedDirectory("cluster", "s" * 64)
    with _running(lambda home, stack: _join(home, count, directory, settings, stack, known), count) as found:
        yield found


@contextmanager
def _running(join: Join, count: int) -> Iterator[RunningHomes]:
    running: Future[RunningHomes] = Future()
    stop: Future[None] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(count, join, running, stop)))
    thread.start()
    try:
        yield running.result(PATIENCE)
    finally:
        stop.set_result(None)
        thread.join(PATIENCE)


async def _join(
    home: int,
    count: int,
    directory: Path,
    settings: dict[str, Any],
    stack: AsyncExitStack,
    known: FixedDirectory | None = None,
) -> Broker:
    timing = settings.get("timing", TIMING)
    config = config_of(home, count, directory, **{name: settings[name] for name in settings.keys() - {"timing"}})
    if known is not None:
        config.node = NODES[home - 1]
    config.http_port = 0 if home == 1 or known is not None else None
    broker = await started(config, known, timing)
    stack.push_async_callback(stopped, broker)
    assert isinstance(broker.peers, OtherHomes)
    management = (
        managed(broker, broker.peers, HomesDirectory.of(config))
        if known is None
        else managed_node(broker, broker.peers)
    )
    await stack.enter_async_context(management)
    return broker


async def _serve(count: int, join: Join, running: Future[RunningHomes], stop: Future[None]) -> None:
    try:
        async with AsyncExitStack() as stack:
            brokers, stacks = [], []
            for home in range(1, count + 1):
                stacks.append(await stack.enter_async_context(AsyncExitStack()))
                brokers.append(await join(home, stacks[-1]))
            running.set_result(RunningHomes(brokers, stacks, join, asyncio.get_running_loop()))
            await asyncio.wrap_future(stop)
    except BaseException as error:
        if running.done():
            raise
        running.set_exception(error)
