"""The process of a broker: its log, open files, memory and garbage collection, from start to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from jumpmq.broker import Config
from jumpmq.broker.memory.heap import KeptMemory, keep_few_arenas
from jumpmq.queues.clock import until_tick
from jumpmq.queues.memory import MemoryAccount
from jumpmq.serving.logs import configure

log = logging.getLogger(__name__)

_BEGAN = time.monotonic()

MAX_FILES = 1 << 20
"""Limit of open files where the system sets none."""

STOPS = signal.SIGTERM, signal.SIGINT
"""Signals to stop the broker."""

SHORT_LIFE = 30.0
"""Seconds after the start until a process that starts again is not regarded as failing."""

FREE_RESTARTS = 2
"""Restarts of short lives without a pause: one for a home's first copies, one for a change of leader meanwhile."""

LONGEST_PAUSE = 30.0
"""Maximum pause before a restart, in seconds."""

RESTARTS = "JUMPMQ_RESTARTS"
"""Environment variable with the number of successive short lives before this one."""

MEMORY_INTERVAL = 0.1
"""Seconds between two looks at how much of freed memory is to be kept."""


def prepare(config: Config, process: tuple[str, int] | None = None) -> None:
    """Configure the current process for serving.

    Args:
        process: which of several it is, as :func:`jumpmq.serving.logs.configure` has it.
    """
    gc.disable()  # until ready: objects of the start are permanent
    configure(config.log_level, config.log_format, process)
    _raise_file_limit()
    keep_few_arenas()


async def until_stopped(serving: Coroutine[Any, Any, None], stop: asyncio.Event, started: asyncio.Event) -> None:
    """Run ``serving`` until ended or stopped.

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


def end_at_once(reason: str) -> None:
    """End as in a crash: a clean stop would wait for a commit that does not come. The next start
    recovers from the log.
    """
    _shut_down_connections()
    logging.shutdown()
    os._exit(1)


def end_on_signal() -> None:
    """End the process at once on a signal to stop: the broker has stopped, and the process is about to start again.

    A signal may be given to any thread: a mask of the main thread does not keep it for the next run.
    """
    for number in STOPS:
        signal.signal(number, lambda number, frame: os._exit(0))


def start_again() -> NoReturn:
    """Replace this process by a new run of the program, with the same arguments and process number.

    After several short lives there is a pause before. A signal to stop ends the process, here or in the next run.
    """
    end_on_signal()
    _shut_down_connections()
    is_short = time.monotonic() - _BEGAN < SHORT_LIFE
    told = os.environ.get(RESTARTS, "")
    restarts = (int(told) if told.isdecimal() else 0) + 1 if is_short else 0
    if pause := restart_pause(restarts):
        _pause(pause, f"the process ended soon after its start {restarts} times; it starts again in {pause:g} s")
    logging.shutdown()
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {RESTARTS: str(restarts)})


def restart_pause(restarts: int) -> float:
    """Return the pause before a restart, in seconds.

    Args:
        restarts: successive short lives.
    """
    return 0.0 if restarts <= FREE_RESTARTS else min(LONGEST_PAUSE, 0.1 * 2.0 ** (restarts - FREE_RESTARTS - 1))


def _pause(seconds: float, reason: str) -> None:
    """Log the reason, and wait in the main thread, where handlers run: a signal may come to any thread."""
    log.error(reason)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)


def _shut_down_connections() -> None:
    """End the connections at once: a thread waiting for a disk keeps the process and all its sockets. Listening sockets
    may be shared with other processes, and stay."""
    with suppress(OSError):
        for path in Path("/dev/fd").iterdir():
            _shut_down(int(path.name))


def _shut_down(descriptor: int) -> None:
    with suppress(OSError):
        one = socket.socket(fileno=descriptor)
        try:
            if one.family != socket.AF_UNIX and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                one.shutdown(socket.SHUT_RDWR)
        finally:
            one.detach()


async def keep_memory(account: MemoryAccount) -> None:
    """Return the memory of the start to the system, at intervals."""
    kept, loop = KeptMemory(account), asyncio.get_running_loop()
    while True:
        await asyncio.sleep(until_tick(MEMORY_INTERVAL, loop.time()))
        kept.look()


def calm_garbage_collection() -> None:
    """Keep garbage collections short, and full ones rare: with ten thousand queues one stops all deliveries for 50 ms.

    Messages are no business of the collector (they are in no circles), and connections and queues let go of what refers
    to them, so what it must find is little. A collection of the young takes half a millisecond, one of the next
    generation two or three. A full one, which takes 35 ms behind ten thousand new queues, comes after sixty million
    more objects were made than went. What the start made stays, and is never looked through: of 85,000 objects a
    thousand are garbage.
    """
    gc.freeze()
    gc.set_threshold(2_000, 2, 10_000)
    gc.enable()


def collect_garbage() -> None:
    """Collect all garbage now: what a broker was that has ended, while the process goes on. Its parts are in circles,
    may be among what :func:`calm_garbage_collection` has frozen, and the next full collection may be days away.
    """
    gc.unfreeze()
    gc.collect()


def _raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum: every connection takes a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
