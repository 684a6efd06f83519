"""A broker in this process: standalone, or as a node of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from jumpmq.broker import Config
from jumpmq.serving import server
from jumpmq.serving.server import Control


def serving(
    config: Config,
    stop: Callable[[], None] | None = None,
    fail: Callable[[str], None] = lambda reason: None,
    again: Callable[[str, bool], None] | None = None,
) -> AbstractAsyncContextManager[Control]:
    """Serve until the block ends; see :func:`jumpmq.nodes.serving.serving`."""
    if config.cluster is None and config.homes == 1:
        return server.serving(config, stop, fail)
    from jumpmq.nodes.serving import serving as serving_home  # here: a standalone broker does not load this module

    return serving_home(config, stop, fail, again)
