"""Availability of changes of definitions: etcd accepts changes, and has all entries applied by this node.

Reads and keep-alives succeed in an etcd that takes no changes, for want of space, so only an accepted change ends a
standstill. ``Timing.patience`` seconds after the first failed call clients are told. An etcd that was set back, or has
lost its data, is told of at once: no later answer of it can be trusted until it has the missing entries again.
"""

import asyncio
import logging
from collections.abc import Callable

from jumpmq.nodes.etcd.client import EtcdError, NoSpace
from jumpmq.nodes.log.cluster_log import NO_SPACE, SET_BACK, STANDS_STILL

log = logging.getLogger(__name__)


class Standstill:
    """State of the standstill, if any. For use in the event loop.

    Args:
        on_begin: called with the text for clients when definitions cannot be changed; also when the text changes.
        on_end: called when they can be changed again.
        patience: seconds without a change in etcd before clients are told.

    Attributes:
        reason: sentence for operators; None while definitions can be changed.
        set_back: what etcd lacks, a sentence; None where it lacks nothing, as far as is known.
    """

    def __init__(self, on_begin: Callable[[str], None], on_end: Callable[[], None], patience: float) -> None:
        self.reason: str | None = None
        self.set_back: str | None = None
        self._on_begin = on_begin  # tells clients
        self._on_end = on_end  # ends that
        self._limit = patience  # seconds from the first failed call until clients are told
        self._patience: asyncio.TimerHandle | None = None  # runs while calls fail, until clients are told
        self._error: EtcdError | None = None  # of the last call that failed, since a change was accepted

    def failed(self, error: EtcdError) -> None:
        """A call of etcd has failed."""
        if self._error is None:
            log.warning("%s; the node repeats the request until etcd answers", error)
            self._patience = asyncio.get_running_loop().call_later(self._limit, self._begin)
        self._error = error

    def changed(self, url: str) -> None:
        """Etcd has accepted a change, or would have: the member at ``url``."""
        if self._error is None:
            return
        log.info("etcd at %s takes changes", url)
        self.stop()
        self._error = None
        if self.set_back is None:
            self._end()

    def lacks(self, entries: str | None) -> None:
        """Handle the result of a query to etcd for entries applied by this node.

        Args:
            entries: sentence of what it lacks; None where it has everything.
        """
        if entries == self.set_back:
            return
        self.set_back = entries
        if entries is not None:
            self._stand_still(entries, SET_BACK)
        else:
            log.warning("etcd again has all entries applied by this node")
            if self._error is None:
                self._end()

    def stop(self) -> None:
        """Stop notifying."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _begin(self) -> None:
        if self.set_back is None:
            no_space = isinstance(self._error, NoSpace)
            self._stand_still(f"etcd has taken no change for {self._limit:g} s: {self._error}",
                              NO_SPACE if no_space else STANDS_STILL)  # fmt: skip

    def _stand_still(self, reason: str, told: str) -> None:
        log.error("definitions cannot be changed: %s", reason)
        self.reason = reason
        self._on_begin(told)

    def _end(self) -> None:
        if self.reason is not None:
            log.info("definitions can be changed again")
            self.reason = None
            self._on_end()
