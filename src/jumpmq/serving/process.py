"""The process of a broker: its log, open files, memory and garbage collection, from start to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from jumpmq.broker import Config
from jumpmq.broker.memory.heap import KeptMemory, keep_few_arenas
from jumpmq.queues.memory import MemoryAccount
from jumpmq.serving.logs import configure

MAX_FILES = 1 << 20
"""Limit of open files where the system sets none."""

MEMORY_INTERVAL = 0.1
"""Seconds between two looks at how much of freed memory is to be kept."""


def prepare(config: Config, process: tuple[str, int] | None = None) -> None:
    """Configure the current process for serving.

    Args:
        process: which of several it is, as :func:`jumpmq.serving.logs.configure` has it.
    """
    gc.disable()  # until it serves: what there is by then stays
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


def start_again() -> NoReturn:
    """Put a new run of the program in the place of this one, with the same arguments and number of process."""
    _shut_down_connections()
    logging.shutdown()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _shut_down_connections() -> None:
    """End the connections at once: a thread that waits for a disk keeps the process, and with it all its sockets, until
    the disk answers. Listening sockets may be shared with other processes, and stay.
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
            one.detach()


async def keep_memory(account: MemoryAccount) -> None:
    """Return the memory of the start to the system, at intervals."""
    kept = KeptMemory(account)
    while True:
        await asyncio.sleep(MEMORY_INTERVAL)
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


def _raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum: every connection takes a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
