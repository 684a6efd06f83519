"""Several homes of one broker in one event loop, each a :class:`Broker` of its own with links to the others."""

import asyncio
import functools
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

from jumpmq.broker import Broker, Config
from jumpmq.nodes.transport.directory import FixedDirectory
from jumpmq.topology import Change
from jumpmq.topology.json_form import to_json

P = ParamSpec("P")

NODES = "one@host", "two@host", "three@host"


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test as a coroutine, in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def config_of(home: int, homes: int, directory: Path, *, durable: bool = True, **settings: Any) -> Config:
    """The settings of one home; its data, if it is durable, and its links are in ``directory``."""
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


@asynccontextmanager
async def homes(
    count: int, directory: Path | None = None, *, durable: bool = True, **settings: Any
) -> AsyncIterator[list[Broker]]:
    """So many homes that have joined each other; the first is ``[0]``. They are stopped at the end."""
    async with AsyncExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers: list[Broker] = []
        for home in range(1, count + 1):
            broker = await started(config_of(home, count, directory, durable=durable, **settings))
            stack.push_async_callback(stopped, broker)
            brokers.append(broker)
        yield brokers


@asynccontextmanager
async def nodes(count: int, directory: Path, **settings: Any) -> AsyncIterator[list[Broker]]:
    """So many nodes with a home each, with links of TCP and TLS; they are called ``one@host`` and so on."""
    others = FixedDirectory("cluster", "s" * 64)
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for home in range(1, count + 1):
            config = config_of(home, count, directory, node=NODES[home - 1], **settings)
            broker = await started(config, others)
            stack.push_async_callback(stopped, broker)
            brokers.append(broker)
        yield brokers


async def started(config: Config, directory: FixedDirectory | None = None) -> Broker:
    """A home that serves."""
    broker = Broker(config, directory)
    async with asyncio.timeout(20):
        await broker.start()
    return broker


async def stopped(broker: Broker) -> None:
    """Stop a home, unless it is."""
    if broker.listeners:
        await broker.stop()
        broker.listeners.clear()


async def propose(broker: Broker, change: Change) -> list[Change]:
    """Ask a home for a change, and wait until it is decided.

    Raises:
        AMQPError: it is refused.
    """
    known = asyncio.Event()
    with broker.turns.turn():
        pending = broker.topology.propose(change)
    pending.then(known.set)
    async with asyncio.timeout(20):
        await known.wait()
    pending.result()
    return pending.effects


def definitions_of(broker: Broker) -> dict[str, Any]:
    """Queues by virtual host and name, as this home knows them."""
    hosts = broker.topology.vhosts.values()
    return {host.name: {one.name: to_json(one.definition) for one in host.declared.values()} for host in hosts}


async def until(true: Callable[[], object]) -> None:
    """Let others go on until something is true, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
