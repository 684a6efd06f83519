"""A broker inside this process, for tests and examples."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import uvloop

from jumpmq.broker import Config
from jumpmq.cli.server import RunningBroker, serving

__all__ = ["RunningBroker", "running"]


@contextmanager
def running(**config: Any) -> Iterator[RunningBroker]:
    """Runs a broker in a thread of its own for as long as the block lasts.

    Args:
        config: fields of `jumpmq.Config`. Unless given, the broker listens on free ports of 127.0.0.1 and keeps
            everything in memory; with `data_dir` it is durable.

    Yields:
        where it listens: `port`, `http_port`, `amqp_url`, `http_url` (both with user and password), `data_dir`.

    Raises:
        BrokerError: it cannot start.
    """
    defaults: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "http_port": 0, "data_dir": None}
    started: Future[RunningBroker] = Future()
    stop: Future[None] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="jumpmq") as thread:
        stopped = thread.submit(_run, _serve(Config(**defaults | config), started, stop))
        either: list[Future[Any]] = [started, stopped]
        wait(either, return_when=FIRST_COMPLETED)
        if stopped.done():
            stopped.result()  # raises what kept it from starting
        try:
            yield started.result()
        finally:
            stop.set_result(None)
            stopped.result()


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)


async def _serve(config: Config, started: Future[RunningBroker], stop: Future[None]) -> None:
    async with serving(config) as endpoints:
        started.set_result(endpoints)
        await asyncio.wrap_future(stop)
