"""Process of a broker with several processes, with a part of the management."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from jumpmq.broker import Broker, Config
from jumpmq.nodes.entering import enter
from jumpmq.nodes.management.directory import HomesDirectory
from jumpmq.nodes.management.management import managed, managed_node
from jumpmq.nodes.other_homes import OtherHomes
from jumpmq.serving import server
from jumpmq.serving.server import Control, managed_alone


def serving(
    config: Config,
    stop: Callable[[], None] | None = None,
    fail: Callable[[str], None] = lambda reason: None,
) -> AbstractAsyncContextManager[Control]:
    """Serves until the block is left; see :func:`jumpmq.serving.server.serving`."""
    return server.serving(config, stop, fail, enter, _managed)


def _managed(broker: Broker, stop: Callable[[], None] | None) -> AbstractAsyncContextManager[None]:
    others = broker.peers
    if not isinstance(others, OtherHomes):
        return managed_alone(broker, stop)
    if broker.config.cluster is not None:
        return managed_node(broker, others, stop)
    return managed(broker, others, HomesDirectory.of(broker.config), stop)
