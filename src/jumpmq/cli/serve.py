"""`jumpmq serve`: a broker in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from jumpmq.broker import BrokerError, Config
from jumpmq.broker.config import homes_in
from jumpmq.broker.memory.heap import KeptMemory, keep_few_arenas
from jumpmq.cli.logs import configure
from jumpmq.cli.server import Control, serving
from jumpmq.cli.settings import SettingError, Value, default_file, in_force
from jumpmq.cli.supervisor import notify
from jumpmq.queues.memory import MemoryAccount

if TYPE_CHECKING:
    from jumpmq.nodes.processes.workers import SeveralControl

MAX_FILES = 1 << 20
"""Open files that are asked for where the system sets no limit."""

STOPS = signal.SIGTERM, signal.SIGINT
"""What ends the broker."""

MEMORY_INTERVAL = 0.1
"""Seconds between two looks at how much of freed memory is to be kept."""


def default_data_dir() -> Path:
    """Where messages are kept unless `--data-dir` says otherwise, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "jumpmq"


def settings_in_force(file: Path | None, options: Mapping[str, str | None]) -> dict[str, Value]:
    """Every setting, and whence it is.

    Args:
        file: the configuration file; None for the default ones.
        options: what the command line says, by setting.

    Raises:
        SettingError: as :func:`jumpmq.cli.settings.in_force`.
    """
    defaults = {**asdict(Config()), "data_dir": default_data_dir()}
    return in_force(options, file or default_file(), defaults)


def run(file: Path | None, options: Mapping[str, str | None]) -> int:
    """Serves with these settings, see :func:`settings_in_force`, and returns the exit status. What keeps it from that
    is one line on stderr.
    """
    try:
        serve(Config(**{name: found.value for name, found in settings_in_force(file, options).items()}))
    except (SettingError, BrokerError) as error:
        print(f"jumpmq: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingError) else 1
    except RuntimeError as error:
        if "thread" not in str(error):
            raise
        print(f"jumpmq: {error}: this user or container may have no more", file=sys.stderr)
        return 1
    return 0


def serve(config: Config) -> None:
    """Serves until SIGTERM, SIGINT or `jumpmqctl stop`, then stops cleanly.

    Raises:
        BrokerError: the broker cannot start.
    """
    prepare(config)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve_until_signal(config))
    finally:
        for number in STOPS:  # nothing is left to stop: one more would be what the process ended of
            signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # all goes with the process: to look through what a hundred thousand queues were takes seconds


def prepare(config: Config, process: tuple[str, int] | None = None) -> None:
    """Set this process up to serve.

    Args:
        process: which of several it is, as :func:`jumpmq.cli.logs.configure` has it.
    """
    gc.disable()  # until it serves: what there is by then stays
    configure(config.log_level, config.log_format, process)
    _raise_file_limit()
    keep_few_arenas()


async def _serve_until_signal(config: Config) -> None:
    stop, started = asyncio.Event(), asyncio.Event()
    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await until_stopped(_serve(config, stop, started), stop, started)


async def until_stopped(serving: Coroutine[Any, Any, None], stop: asyncio.Event, started: asyncio.Event) -> None:
    """Serve until that ends.

    Args:
        serving: does it, and ends by itself once `stop` is set.
        stop: set when it is to end.
        started: set once it serves. Before, it is cancelled: what a start waits for, etcd say, may never come.
    """
    task = asyncio.create_task(serving, name="serving")
    told = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not started.is_set():
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _serve(config: Config, stop: asyncio.Event, started: asyncio.Event) -> None:
    async with _serving(config, stop.set) as control:
        started.set()
        hang_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up.set)
        calm_garbage_collection()
        keeping = None
        if isinstance(control, Control):  # else each worker keeps its own
            keeping = asyncio.create_task(keep_memory(control.memory), name="memory")
        print(control.endpoints.ready_line(), flush=True)
        notify("READY=1")
        reloading = asyncio.create_task(_reload_certificates(control, hang_up), name="reload")
        await stop.wait()
        notify("STOPPING=1")
        reloading.cancel()
        if keeping is not None:
            keeping.cancel()


def end_at_once(reason: str) -> None:
    """End as a crash does: a clean stop would wait for what does not come. Starting from the log is what is left."""
    logging.shutdown()
    os._exit(1)


def _serving(config: Config, stop: Callable[[], None]) -> AbstractAsyncContextManager[Control | SeveralControl]:
    if max(config.workers, homes_in(config.data_dir)) == 1:
        return serving(config, stop, end_at_once)
    from jumpmq.nodes.processes.workers import serving_workers  # here, so that a process alone does not load it

    return serving_workers(config, config.workers, stop, end_at_once)


async def _reload_certificates(control: Control | SeveralControl, hang_up: asyncio.Event) -> None:
    """At each SIGHUP."""
    while await hang_up.wait():
        hang_up.clear()
        await control.reload_certificates()


async def keep_memory(account: MemoryAccount) -> None:
    """From the start's end on: what the start took goes back."""
    kept = KeptMemory(account)
    while True:
        await asyncio.sleep(MEMORY_INTERVAL)
        kept.look()


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us have: each connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def calm_garbage_collection() -> None:
    """Keep collections short, and full ones rare: over ten thousand queues one stops all deliveries for 50 ms.

    Messages are no business of the collector (they are in no circles), and connections and queues let go of what refers
    to them, so what it must find is little. A collection of the young takes half a millisecond, one of the next
    generation two or three. A full one, which takes 35 ms behind ten thousand new queues, comes after sixty million
    more objects were made than went. What the start made stays, and is never looked through: of 85,000 objects a
    thousand are garbage.
    """
    gc.freeze()
    gc.set_threshold(2_000, 2, 10_000)
    gc.enable()
