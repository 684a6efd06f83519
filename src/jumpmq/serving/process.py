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
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from jumpmq.broker import Config
from jumpmq.broker.memory.heap import KeptMemory, keep_few_arenas
from jumpmq.broker.upkeep.ticks import Ticks
from jumpmq.queues.memory import MemoryAccount
from jumpmq.serving.logs import configure

log = logging.getLogger(__name__)

_BEGAN = time.monotonic()

MAX_FILES = 1 << 20
"""Limit of open files if the system sets no limit."""

STOPS = signal.SIGTERM, signal.SIGINT
"""Signals to stop the broker."""

SHORT_LIFE = 30.0
"""Seconds of life after which a restart is not regarded as a failure."""

FREE_RESTARTS = 2
"""Restarts after short lives without a pause: one for a home's first copies, one for a change of leader at the same
time.
"""

LONGEST_PAUSE = 30.0
"""Maximum pause before a restart, in seconds."""

RESTARTS = "JUMPMQ_RESTARTS"
"""Environment variable with the number of successive short lives before this one."""

MEMORY_INTERVAL = 0.1
"""Seconds between two adjustments of the freed memory that the process keeps."""


def prepare(config: Config, process: tuple[str, int] | None = None) -> None:
    """Configure the current process for serving.

    Args:
        process: kind and number of this process, as for :func:`jumpmq.serving.logs.configure`.
    """
    gc.disable()  # until ready: objects of the start are permanent
    configure(config.log_level, config.log_format, process)
    _raise_file_limit()
    keep_few_arenas()
    sys.meta_path.insert(0, _WithoutPandas())


class _WithoutPandas:
    """Prevents the import of pandas. pyarrow imports an installed pandas at its first array, which takes 0.2 s, delays
    clients meanwhile, and takes 46 MB; the broker does not use pandas.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        if name == "pandas":
            raise ModuleNotFoundError("the broker does not use pandas", name=name)


async def until_stopped(serving: Coroutine[Any, Any, None], stop: asyncio.Event, started: asyncio.Event) -> None:
    """Run ``serving`` until ended or stopped.

    Args:
        serving: the coroutine that serves; must end after `stop` is set.
        stop: set to end the serving.
        started: set by `serving` at the end of the start. A stop before that cancels `serving`, because a start may
            wait forever, for example for etcd.
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
    """End the process as in a crash, because a clean stop would wait for a commit that never completes. The next start
    recovers from the log.
    """
    _shut_down_connections()
    logging.shutdown()
    os._exit(1)


def end_on_signal() -> None:
    """Set handlers that end the process at once on a signal to stop, for the time between two runs of the broker.

    A signal mask of the main thread would not keep the signal for the next run, because the system may deliver the
    signal to another thread.
    """
    for number in STOPS:
        signal.signal(number, lambda number, frame: os._exit(0))


def start_again() -> NoReturn:
    """Replace this process by a new run of the program, with the same arguments and process id.

    After several short lives, a pause precedes the new run. A signal to stop ends the process, during the pause or in
    the new run.
    """
    end_on_signal()
    _shut_down_connections()
    is_short = time.monotonic() - _BEGAN < SHORT_LIFE
    told = os.environ.get(RESTARTS, "")
    restarts = (int(told) if told.isdecimal() else 0) + 1 if is_short else 0
    if pause := restart_pause(restarts):
        _pause(pause, f"the process ended soon after its start {restarts} times; the next start is in {pause:g} s")
    logging.shutdown()
    sys.stdout.flush()
    # A signal between here and the new run's handlers stays pending, instead of ending the process by default.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {RESTARTS: str(restarts)})


def restart_pause(restarts: int) -> float:
    """Return the pause before a restart, in seconds.

    Args:
        restarts: number of successive short lives.
    """
    return 0.0 if restarts <= FREE_RESTARTS else min(LONGEST_PAUSE, 0.1 * 2.0 ** (restarts - FREE_RESTARTS - 1))


def _pause(seconds: float, reason: str) -> None:
    """Log the reason, and wait in short steps, so that the main thread can run signal handlers in between."""
    log.error(reason)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)


def _shut_down_connections() -> None:
    """Shut the connections down. Otherwise a thread that waits for the disk would keep the process, and thereby all
    sockets, alive. Listening sockets stay, because other processes may share them.
    """
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
            # The descriptor belongs to another object, which closes it.
            one.detach()


def keep_memory(account: MemoryAccount) -> Ticks:
    """Return freed memory to the system, at intervals of :data:`MEMORY_INTERVAL`, until the result is cancelled."""
    return Ticks(MEMORY_INTERVAL, KeptMemory(account).look)


def calm_garbage_collection() -> None:
    """Keep garbage collections short, and full collections rare: with ten thousand queues, a full collection stops all
    deliveries for 50 ms.

    Little garbage needs the collector: messages are in no reference cycles, and connections and queues break their
    cycles at their end. A collection of the youngest generation takes half a millisecond, of the next generation two or
    three milliseconds. A full collection, which takes 35 ms after the creation of ten thousand queues, begins after
    sixty million more objects were created than freed. Objects of the start are frozen, and never examined: of 85,000
    objects, a thousand are garbage.
    """
    gc.freeze()
    gc.set_threshold(2_000, 2, 10_000)
    gc.enable()


def collect_garbage() -> None:
    """Free the objects of an ended broker in a process that continues. The objects are in reference cycles, and may be
    frozen by :func:`calm_garbage_collection`; the next full collection may be days away.
    """
    gc.unfreeze()
    gc.collect()


def _raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum, because every connection takes a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
