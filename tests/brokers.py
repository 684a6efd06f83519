"""Brokers in the event loop of a test, and common operations on them."""

import asyncio
import contextlib
import functools
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec

import pika
from tests.waiting import PATIENCE

from jumpmq.broker import Broker, Config
from jumpmq.broker.broker import start
from jumpmq.broker.peers import Enter, alone
from jumpmq.queues import Queue
from jumpmq.topology import Arguments, Bind, Binding, Change, DeclareQueue
from jumpmq.topology.json_form import to_json

P = ParamSpec("P")


_started: ContextVar[AsyncExitStack | None] = ContextVar("_started", default=None)
"""Stops of the brokers started within the innermost :func:`stopping`."""


@asynccontextmanager
async def stopping() -> AsyncIterator[None]:
    """Stop all running brokers started by :func:`started` in this context, in reverse order."""
    async with AsyncExitStack() as stack:
        before = _started.set(stack)
        stack.callback(_started.reset, before)
        yield


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine as a test, in a new event loop, and stop its brokers at the end."""

    async def stopped_at_the_end(*args: P.args, **kwargs: P.kwargs) -> None:
        async with stopping():
            await test(*args, **kwargs)

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(stopped_at_the_end(*args, **kwargs))

    return run


def config_of(home: int, homes: int, directory: Path, *, durable: bool = True, **settings: Any) -> Config:
    """The settings of a home; the data of a durable home and its links are in ``directory``."""
    return Config(
        host="127.0.0.1",
        port=0,
        http_port=None,
        tls_port=None,
        https_port=None,
        home=home,
        homes=homes,
        links=directory / "links",
        data_dir=directory / f"home-{home}" if durable else None,
        **settings,
    )


async def started(config: Config, enter: Enter = alone) -> Broker:
    """Start a broker, with its peers, until the end of the test or of its context; see :func:`stopping`."""
    async with asyncio.timeout(PATIENCE):
        broker = await start(config, enter)
    if (stack := _started.get()) is not None:
        stack.push_async_callback(stopped, broker)
    return broker


async def stopped(broker: Broker) -> None:
    """Stop a home, unless stopped."""
    if broker.listeners:
        await broker.stop()
        broker.listeners.clear()


async def propose(broker: Broker, change: Change) -> list[Change]:
    """Propose a change to a home, and wait for the decision.

    Raises:
        AMQPError: the change is refused.
    """
    known = asyncio.Event()
    with broker.turns.turn():
        pending = broker.topology.propose(change)
    pending.then(known.set)
    async with asyncio.timeout(PATIENCE):
        await known.wait()
    pending.result()
    return pending.effects


def copied(directory: Path, copy: Path) -> None:
    """Copy the data directory of a serving home, as after a crash.

    A thread of the home may remove a file meanwhile: the copy is repeated until nothing changes during it.
    """
    passing = shutil.ignore_patterns("*.new", "links")
    while True:
        before = _files(directory)
        with contextlib.suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(directory, copy, ignore=passing)
            if _files(directory) == before:
                return
        shutil.rmtree(copy)


def _files(directory: Path) -> dict[Path, tuple[int, int]]:
    """Size and modification time of every file."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            found[path] = (state.st_size, state.st_mtime_ns)
    return found


def definitions_of(broker: Broker) -> dict[str, Any]:
    """Queues by virtual host and name, as known to this home."""
    hosts = broker.topology.vhosts.values()
    return {host.name: {one.name: to_json(one.definition) for one in host.declared.values()} for host in hosts}


async def until(true: Callable[[], object]) -> None:
    """Run the event loop until a condition is true, for a minute at most."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def declare(broker: Broker, name: str, arguments: dict[str, Any] | None = None, *, durable: bool = True) -> None:
    """Declare a queue at this home."""
    definition = broker.topology.define_queue("/", name, durable, arguments=Arguments.of(arguments or {}))
    await propose(broker, DeclareQueue(definition))


async def bind(broker: Broker, exchange: str, queue: str, key: str = "", kind: str = "queue") -> None:
    await propose(broker, Bind("/", Binding(exchange, kind, queue, key.encode(), Arguments())))  # type: ignore[arg-type]


@contextlib.contextmanager
def confirming_channel(port: int, vhost: str = "/") -> Iterator[Any]:
    """Connect a pika client to a broker, and open a channel with confirms."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


async def with_channel(broker: Broker, work: Callable[[Any], Any]) -> Any:
    """Run a client's work on a channel of this home, in a separate thread."""

    def run() -> Any:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
        try:
            return work(connection.channel())
        finally:
            if connection.is_open:
                connection.close()

    return await asyncio.to_thread(run)


def queue_of(broker: Broker, name: str) -> Queue:
    return broker.topology.vhosts["/"].queues[name]


def bodies(broker: Broker, name: str) -> list[bytes]:
    queue = queue_of(broker, name)
    return [message.body for message in queue.peek(1, queue.next_seq)]
