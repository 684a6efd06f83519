"""Child processes with modules of the package: start, restart after a pause, end."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]
"""Parent directory of the imported ``jumpmq`` package."""

SHORT_LIFE = 10.0
"""Seconds of a run after which a restart is not delayed."""

LONGEST_PAUSE = 10.0
"""Maximum pause before a restart, in seconds."""

FIRST_PAUSE = 0.1
"""Pause before the restart after one short life, in seconds; doubled with each further short life."""

START_RETRY = 1.0
"""Seconds between a failed start, for example with too many open files, and the next attempt."""

StartedChild = tuple[subprocess.Popen[bytes], socket.socket]
"""A child, and the parent's end of the socket pair between parent and child."""


def package_environment() -> dict[str, str]:
    """Return an environment for children (``python -P -m jumpmq.…``), with the package in the import path."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start_module(
    module: str,
    *arguments: str,
    pass_fds: Collection[int] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a module of the package.

    Args:
        module: full name of the module.
        arguments: arguments of the module.
        pass_fds: descriptors inherited by the child.
        stdin, stdout: as of :class:`subprocess.Popen`.

    Raises:
        OSError: the limit of files or processes is reached, or memory is exhausted.
    """
    command = _command(module, *arguments)
    return subprocess.Popen(command, pass_fds=pass_fds, stdin=stdin, stdout=stdout, env=package_environment())


async def run_module(module: str, standard_input: bytes) -> tuple[int, bytes]:
    """Run a module of the package with a low priority for the processor. A cancellation kills the child.

    Returns:
        The exit status, and the octets of standard error.

    Raises:
        OSError: the limit of files or processes is reached, or memory is exhausted.
    """
    child = await asyncio.create_subprocess_exec(
        *("nice", *_command(module)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=package_environment(),
    )
    try:
        _, errors = await child.communicate(standard_input)
    finally:
        if child.returncode is None:
            child.kill()
    return await child.wait(), errors


def start_child(module: str, *arguments: str) -> StartedChild:
    """Start a module with a socket to this process. The child's first argument is the descriptor of its socket.

    Raises:
        OSError: the limit of files or processes is reached, or memory is exhausted.
    """
    ours, theirs = socket.socketpair()
    try:
        child = start_module(module, str(theirs.fileno()), *arguments, pass_fds=[theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return child, ours


def ended(child: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for a child, killed after ``seconds``, and return the exit status."""
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def pause_after(short_lives: int) -> float:
    """Return the pause before the restart of a child, in seconds.

    Args:
        short_lives: number of consecutive runs shorter than :data:`SHORT_LIFE`.
    """
    pause = 0.0
    for _ in range(short_lives):
        pause = max(FIRST_PAUSE, 2 * pause)
        if pause >= LONGEST_PAUSE:
            return LONGEST_PAUSE
    return pause


async def start_again(start: Callable[[], Awaitable[None]], pause: float, child: str, log: logging.Logger) -> None:
    """Start a child after a pause, and repeat failed starts.

    Args:
        start: starts the child; an ``OSError`` is logged, and the start is repeated after :data:`START_RETRY`.
        pause: seconds before the first attempt.
        child: name of the child, for the log.
    """
    await asyncio.sleep(pause)
    while True:
        try:
            await start()
            return
        except OSError as error:
            log.error("%s cannot be started: %s; again in %g s", child, error.strerror, START_RETRY)
            await asyncio.sleep(START_RETRY)


def _command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]
