"""Several homes of a broker in one event loop, as separate, linked :class:`Broker` objects."""

import functools
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests import brokers
from tests.brokers import config_of, definitions_of, in_loop, propose, stopped, stopping, until
from tests.nodes.fixed_directory import FixedDirectory

from jumpmq.broker import Broker, Config
from jumpmq.nodes.entering import enter
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.nodes.timing import TIMING, Timing

__all__ = [
    "NODES",
    "config_of",
    "definitions_of",
    "homes",
    "in_loop",
    "nodes",
    "peers_of",
    "propose",
    "started",
    "stopped",
    "until",
]

NODES = "one@host", "two@host", "three@host"


@asynccontextmanager
async def homes(
    count: int, directory: Path | None = None, *, durable: bool = True, timing: Timing = TIMING, **settings: Any
) -> AsyncIterator[list[Broker]]:
    """Run so many linked homes; the first is ``[0]``. All homes are stopped at the end, restarted homes too."""
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        async with stopping():
            yield [
                await started(config_of(home, count, directory, durable=durable, **settings), timing=timing)
                for home in range(1, count + 1)
            ]


@asynccontextmanager
async def nodes(
    count: int, directory: Path, *, timing: Timing = TIMING, **settings: Any
) -> AsyncIterator[list[Broker]]:
    """Run so many nodes of one home, with links of TCP and TLS, named ``one@host`` and so on."""
    others = FixedDirectory("cluster", "s" * 64)
    async with stopping():
        yield [
            await started(config_of(home, count, directory, node=NODES[home - 1], **settings), others, timing)
            for home in range(1, count + 1)
        ]


def peers_of(broker: Broker) -> OtherHomes:
    """Return the peers of a home."""
    assert isinstance(broker.peers, OtherHomes)
    return broker.peers


async def started(config: Config, directory: FixedDirectory | None = None, timing: Timing = TIMING) -> Broker:
    """Return a serving home."""
    return await brokers.started(config, functools.partial(enter, directory=directory, timing=timing))
