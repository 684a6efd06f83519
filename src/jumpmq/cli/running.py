"""A broker inside this process, for tests and examples."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from jumpmq.broker import Config
from jumpmq.cli.server import RunningBroker, serving

__all__ = ["RunningBroker", "running"]

PATHS = {"data_dir", "tls_cert", "tls_key", "tls_ca"}
FREE_PORTS: dict[str, Any] = {"port": 0, "http_port": 0, "tls_port": 0, "https_port": 0}


@contextmanager
def running(*, tls: bool = False, **config: Any) -> Iterator[RunningBroker]:
    """Runs a broker in a thread of its own for as long as the block lasts.

    Args:
        tls: whether it speaks TLS too, with certificates made for it; clients find their authority's at `tls_ca`.
        config: fields of `jumpmq.Config`; paths may be text. Unless given, the broker listens on free ports of
            localhost and keeps everything in memory; with `data_dir` it is durable.

    Yields:
        where it listens: `port`, `http_port`, `amqp_url`, `http_url` (both with user and password), `data_dir`; with
            TLS also `tls_port`, `https_port`, `amqps_url`, `https_url` and `tls_ca`.

    Raises:
        BrokerError: it cannot start.
    """
    with ExitStack() as stack:
        made = _certificates(stack) if tls else {}
        paths = {name: Path(config[name]) for name in PATHS & config.keys() if config[name] is not None}
        yield stack.enter_context(_running(Config(**FREE_PORTS | made | config | paths)))


def _certificates(stack: ExitStack) -> dict[str, Any]:
    """Settings of a broker with certificates in a directory that goes with the stack."""
    from jumpmq.cli.certificates import make_certificates

    made = make_certificates(Path(stack.enter_context(TemporaryDirectory(prefix="jumpmq-tls-"))))
    return {"tls_cert": made.server, "tls_key": made.server_key, "tls_ca": made.ca, "tls_client": "optional"}


@contextmanager
def _running(config: Config) -> Iterator[RunningBroker]:
    started: Future[RunningBroker] = Future()
    stop: Future[None] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="jumpmq") as thread:
        stopped = thread.submit(_run, _serve(config, started, stop))
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
    async with serving(config) as control:
        started.set_result(control.endpoints)
        await asyncio.wrap_future(stop)
