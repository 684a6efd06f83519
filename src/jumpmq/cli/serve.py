"""`jumpmq serve`: a broker in the foreground."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from jumpmq.broker import BrokerError, Config
from jumpmq.broker.config import homes_in
from jumpmq.cli.server import serving
from jumpmq.cli.settings import SettingError, SettingValue, default_file, in_force
from jumpmq.cli.supervisor import notify
from jumpmq.serving.process import (
    STOPS,
    calm_garbage_collection,
    end_at_once,
    end_on_signal,
    keep_memory,
    prepare,
    start_again,
    until_stopped,
)
from jumpmq.serving.server import Control

if TYPE_CHECKING:
    from jumpmq.nodes.processes.workers import SeveralControl

log = logging.getLogger(__name__)


def default_data_dir() -> Path:
    """Return the default of `--data-dir`, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "jumpmq"


def settings_in_force(file: Path | None, options: Mapping[str, str | None]) -> dict[str, SettingValue]:
    """Return all settings, with the origin of every setting.

    Args:
        file: the configuration file; None for the default files.
        options: values of the command line by setting; None for a setting not given.

    Raises:
        SettingError: as :func:`jumpmq.cli.settings.in_force`.
    """
    defaults = {**asdict(Config()), "data_dir": default_data_dir()}
    return in_force(options, file or default_file(), defaults)


def run(file: Path | None, options: Mapping[str, str | None]) -> int:
    """Serve with the settings of :func:`settings_in_force`, and return the exit status.

    A failure of the start is printed as one line on stderr.
    """
    try:
        serve(Config(**{name: found.value for name, found in settings_in_force(file, options).items()}))
    except (SettingError, BrokerError) as error:
        print(f"jumpmq: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingError) else 1
    except RuntimeError as error:
        if "thread" not in str(error):
            raise
        print(f"jumpmq: {error}: the limit of this user or container is reached", file=sys.stderr)
        return 1
    return 0


def serve(config: Config) -> None:
    """Serve until SIGTERM, SIGINT or `jumpmqctl stop`, then stop cleanly.

    Raises:
        BrokerError: the broker cannot start.
    """
    prepare(config)
    starts_again = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            starts_again = runner.run(_serve_until_signal(config))
    finally:
        if not starts_again:
            for number in STOPS:  # the broker has stopped: a further signal would kill the process
                signal.signal(number, signal.SIG_IGN)
    if starts_again:
        start_again()
    gc.freeze()  # the process ends: a collection of the objects of a hundred thousand queues would take seconds


async def _serve_until_signal(config: Config) -> bool:
    """Serve until a signal or a request; return True for a new start of the program."""
    stop, started, again, told = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    def end() -> None:
        told.set()
        stop.set()

    def go_again(reason: str, in_order: bool) -> None:
        log.warning("%s: the process starts again", reason)
        if not in_order:
            start_again()
        again.set()
        stop.set()

    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    await until_stopped(_serve(config, stop, started, go_again, end), stop, started)
    await asyncio.sleep(0)  # runs the handlers of signals received meanwhile
    if not again.is_set() or told.is_set():
        return False
    for number in STOPS:
        asyncio.get_running_loop().remove_signal_handler(number)
    end_on_signal()
    return True


async def _serve(
    config: Config,
    stop: asyncio.Event,
    started: asyncio.Event,
    again: Callable[[str, bool], None],
    end: Callable[[], None],
) -> None:
    async with _serving(config, end, again) as control:
        started.set()
        hang_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up.set)
        calm_garbage_collection()
        keeping = None
        if isinstance(control, Control):  # workers keep their memory themselves
            keeping = keep_memory(control.memory)
            _stay(control)
        print(control.endpoints.ready_line(), flush=True)
        notify("READY=1")
        reloading = asyncio.create_task(_reload_certificates(control, hang_up), name="reload")
        await stop.wait()
        notify("STOPPING=1")
        reloading.cancel()
        if keeping is not None:
            keeping.cancel()


def _stay(control: Control) -> None:
    """Cancel the removal of the home of a node with one process: an interrupted ``forget_cluster_node`` leaves the home
    marked, and would keep new queues away from the node. The supervisor of several workers cancels theirs.
    """
    if control.broker.config.cluster is not None:
        from jumpmq.nodes.other_homes import OtherHomes  # here: a standalone broker does not load this module

        if isinstance(control.broker.peers, OtherHomes):
            control.broker.peers.relocating.decide(False)


def _serving(
    config: Config, stop: Callable[[], None], again: Callable[[str, bool], None]
) -> AbstractAsyncContextManager[Control | SeveralControl]:
    if max(config.workers, homes_in(config.data_dir)) == 1:
        return serving(config, stop, end_at_once, again)
    from jumpmq.nodes.processes.workers import serving_workers  # here: a single process does not load this module

    return serving_workers(config, config.workers, stop, end_at_once)


async def _reload_certificates(control: Control | SeveralControl, hang_up: asyncio.Event) -> None:
    """Reload the certificates at each SIGHUP."""
    while await hang_up.wait():
        hang_up.clear()
        await control.reload_certificates()
