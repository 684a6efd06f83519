"""Concurrent roles, each in its own process, so that none waits for another's interpreter."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any

from benchmarks.load.client import LoadError

LONGEST_PREPARATION = 120.0

Figures = dict[str, Any]
Role = Callable[[Barrier], Figures]


class Clock:
    """Elapsed time and processor time of a role since its start."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> Figures:
        """Elapsed seconds, and processor seconds."""
        return {"seconds": time.perf_counter() - self._began, "cpu": time.process_time() - self._cpu}


def together(roles: Sequence[Role]) -> list[Figures]:
    """Run every role in a process of its own. All begin when all are ready. Return the figures of every role."""
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(len(roles), timeout=LONGEST_PREPARATION)
    pipes: list[Pipe] = []
    processes = []
    for role in roles:
        inner, outer = fork.Pipe(duplex=False)
        pipes.append(inner)
        processes.append(fork.Process(target=_play, args=(role, gate, outer), daemon=True))
        processes[-1].start()
        outer.close()
    figures: dict[int, Figures] = {}
    try:
        while len(figures) < len(roles):
            for pipe in wait([pipe for index, pipe in enumerate(pipes) if index not in figures]):
                assert isinstance(pipe, Pipe)
                figures[pipes.index(pipe)] = _received(pipe)
    finally:
        for process in processes:
            if len(figures) < len(roles):
                process.terminate()
            process.join()
    return [figures[index] for index in range(len(roles))]


def _play(role: Role, gate: Barrier, pipe: Pipe) -> None:
    gc.disable()
    try:
        pipe.send(role(gate))
    except (LoadError, OSError) as problem:
        pipe.send({"problem": str(problem)})
    except BrokenBarrierError:
        pipe.send({"problem": "the processes of the load generator did not get ready together"})


def _received(pipe: Pipe) -> Figures:
    try:
        figures: Figures = pipe.recv()
    except EOFError:
        raise LoadError("a process of the load generator died") from None
    if "problem" in figures:
        raise LoadError(figures["problem"])
    return figures
