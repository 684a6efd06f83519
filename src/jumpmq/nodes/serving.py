"""Process of a broker with several processes, with a part of the management."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from jumpmq.broker import Broker, BrokerError, Config
from jumpmq.broker.commit.commits import OpenStore
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
    again: Callable[[str, bool], None] | None = None,
) -> AbstractAsyncContextManager[Control]:
    """Serve until the block ends; see :func:`jumpmq.serving.server.serving`.

    Args:
        again: called with the reason if the process has to restart; True stops the broker in order first. By default
            ``fail`` is called.
    """
    if config.cluster is None:
        return server.serving(config, stop, fail, enter, _managed)
    try:
        from jumpmq.nodes.copies.serving import serving_node  # here, so that workers do not load it
    except ModuleNotFoundError as error:
        raise BrokerError(f"a cluster needs {error.name}: pip install 'jumpmq[cluster]'") from None

    def home(
        config: Config, stop: Callable[[], None] | None, leads: int, open_store: OpenStore
    ) -> AbstractAsyncContextManager[Control]:
        return server.serving(config, stop, fail, partial(enter, leads=leads), _managed, open_store)

    return serving_node(config, stop, again or (lambda reason, in_order: fail(reason)), home)


def load_cluster() -> None:
    """Import modules needed only by a process of a cluster, before their use."""
    import jumpmq.nodes.copies.serving
    import jumpmq.nodes.etcd.posting
    import jumpmq.nodes.membership.starting
    import jumpmq.nodes.transport.tls  # noqa: F401


def _managed(broker: Broker, stop: Callable[[], None] | None) -> AbstractAsyncContextManager[None]:
    others = broker.peers
    if not isinstance(others, OtherHomes):
        return managed_alone(broker, stop)
    if broker.config.cluster is not None:
        return managed_node(broker, others, stop)
    return managed(broker, others, HomesDirectory.of(broker.config), stop)
