"""A broker within a program, for tests and examples: in a thread, or in a child process."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from jumpmq.broker import BrokerError, Config
from jumpmq.broker.config import homes_in
from jumpmq.cli.server import serving
from jumpmq.serving.server import RunningBroker

__all__ = ["RunningBroker", "running"]

PATHS = {"data_dir", "tls_cert", "tls_key", "tls_ca"}
FREE_PORTS: dict[str, Any] = {"port": 0, "http_port": 0, "tls_port": 0, "https_port": 0}


@contextmanager
def running(*, tls: bool = False, process: bool = False, workers: int = 1, **config: Any) -> Iterator[RunningBroker]:
    """Run a broker in a background thread until the block ends.

    Args:
        process: True to run the broker in a child process, which starts a little later. The broker then does not share
            the interpreter with the program, and a program that publishes much is several times as fast. As with any
            use of `multiprocessing`, a script needs ``if __name__ == "__main__":``.
        workers: number of broker processes beside the program, each with a part of the queues; 1 for a single broker,
            in the thread or child process.
        tls: True to listen with TLS, too, with temporary certificates. The authority's certificate for clients is in
            the file `tls_ca`.
        config: fields of `jumpmq.Config`; paths may be text. By default, the broker listens on free ports of localhost
            and keeps everything in memory; with `data_dir`, the broker is durable.

    Yields:
        the broker's addresses: `port`, `http_port`, `amqp_url`, `http_url` (both with user and password), `data_dir`;
            with TLS also `tls_port`, `https_port`, `amqps_url`, `https_url` and `tls_ca`.

    Raises:
        BrokerError: the broker cannot start.
    """
    with ExitStack() as stack:
        made = _certificates(stack) if tls else {}
        paths = {name: Path(config[name]) for name in PATHS & config.keys() if config[name] is not None}
        settings = Config(**FREE_PORTS | made | config | paths)
        if max(workers, homes_in(settings.data_dir)) > 1:
            yield stack.enter_context(_in_thread(partial(_serving_workers, settings, workers)))
        elif process:
            yield stack.enter_context(_in_process(settings))
        else:
            yield stack.enter_context(_in_thread(partial(serving, settings)))


def _serving_workers(config: Config, count: int) -> AbstractAsyncContextManager[Any]:
    from jumpmq.nodes.processes.workers import serving_workers

    return serving_workers(config, count)


def _certificates(stack: ExitStack) -> dict[str, Any]:
    """Return TLS settings with certificates in a directory that the stack removes."""
    from jumpmq.cli.certificates import make_certificates

    made = make_certificates(Path(stack.enter_context(TemporaryDirectory(prefix="jumpmq-tls-"))))
    return {"tls_cert": made.server, "tls_key": made.server_key, "tls_ca": made.ca, "tls_client": "optional"}


@contextmanager
def _in_thread(serve: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[RunningBroker]:
    started: Future[RunningBroker] = Future()
    stop: Future[None] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="jumpmq") as thread:
        stopped = thread.submit(_run, _serve(serve, started, stop))
        either: list[Future[Any]] = [started, stopped]
        wait(either, return_when=FIRST_COMPLETED)
        if stopped.done():
            stopped.result()  # raises the reason of a failed start
        try:
            yield started.result()
        finally:
            stop.set_result(None)
            stopped.result()


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)


async def _serve(
    serve: Callable[[], AbstractAsyncContextManager[Any]], started: Future[RunningBroker], stop: Future[None]
) -> None:
    async with serve() as control:
        started.set_result(control.endpoints)
        await asyncio.wrap_future(stop)


@contextmanager
def _in_process(config: Config) -> Iterator[RunningBroker]:
    context = multiprocessing.get_context("spawn")  # the broker must not share this process's sockets and threads
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(config, theirs), name="jumpmq")
    child.start()
    theirs.close()
    try:
        yield _started(child, ours)
    finally:
        ours.close()
        child.join()


def _started(child: BaseProcess, pipe: Connection) -> RunningBroker:
    try:
        started: RunningBroker | BrokerError = pipe.recv()
    except EOFError:
        child.join()
        advice = ' (a script must start the broker behind if __name__ == "__main__":)' if child.exitcode == 1 else ""
        raise BrokerError(f"the broker's process ended with status {child.exitcode}{advice}") from None
    if isinstance(started, BrokerError):
        raise started
    return started


def _child(config: Config, parent: Connection) -> None:
    """Serve until the parent closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C of the terminal
    try:
        _run(_serve_for(config, parent))
    except BrokerError as error:
        parent.send(error)


async def _serve_for(config: Config, parent: Connection) -> None:
    gone = asyncio.Event()
    async with serving(config) as control:
        parent.send(control.endpoints)
        asyncio.get_running_loop().add_reader(parent.fileno(), gone.set)
        await gone.wait()
