"""Detection of a stall, in which definitions cannot be changed: etcd accepts no changes, or lacks entries applied
by this node.

An etcd without free space still answers reads and keep-alives. Only an accepted change therefore ends a stall.
Changes of definitions are refused ``Timing.patience`` seconds after the first failed request. If etcd was reset to an
older state or has lost its data, changes are refused at once: etcd's answers are wrong until the missing entries
return.
"""

import asyncio
import logging
from collections.abc import Callable

from jumpmq.nodes.etcd.client import EtcdError, NoSpace
from jumpmq.nodes.log.cluster_log import NO_SPACE, SET_BACK, STALLED

log = logging.getLogger(__name__)


class Stall:
    """State of the stall, if any. For use in the event loop.

    Args:
        on_begin: called with the reply text for clients when the stall begins, or its text changes.
        on_end: called when the stall ends.
        patience: seconds of failed requests before the stall begins.

    Attributes:
        reason: the reason, for operators; None while definitions can be changed.
        set_back: description of entries missing in etcd; None if none is known to be missing.
    """

    def __init__(self, on_begin: Callable[[str], None], on_end: Callable[[], None], patience: float) -> None:
        self.reason: str | None = None
        self.set_back: str | None = None
        self._on_begin = on_begin  # begins the stall for clients
        self._on_end = on_end  # ends the stall for clients
        self._limit = patience  # seconds of failed requests before the stall begins
        self._patience: asyncio.TimerHandle | None = None  # runs from the first failed request
        self._error: EtcdError | None = None  # of the last request, if it failed

    def failed(self, error: EtcdError) -> None:
        """Record a failed request to etcd."""
        if self._error is None:
            log.warning("%s; the node repeats the request until etcd answers", error)
            self._patience = asyncio.get_running_loop().call_later(self._limit, self._begin)
        self._error = error

    def changed(self, url: str) -> None:
        """Record that the etcd member at ``url`` accepts changes."""
        if self._error is None:
            return
        log.info("etcd at %s takes changes", url)
        self.stop()
        self._error = None
        if self.set_back is None:
            self._end()

    def lacks(self, entries: str | None) -> None:
        """Record the result of a check of etcd for all entries applied by this node.

        Args:
            entries: description of the missing entries; None if etcd has all entries.
        """
        if entries == self.set_back:
            return
        self.set_back = entries
        if entries is not None:
            self._stall(entries, SET_BACK)
        else:
            log.warning("etcd again has all entries applied by this node")
            if self._error is None:
                self._end()

    def stop(self) -> None:
        """Stop calling the callbacks."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _begin(self) -> None:
        if self.set_back is None:
            no_space = isinstance(self._error, NoSpace)
            self._stall(f"etcd has taken no change for {self._limit:g} s: {self._error}",
                        NO_SPACE if no_space else STALLED)  # fmt: skip

    def _stall(self, reason: str, reply: str) -> None:
        log.error("definitions cannot be changed: %s", reason)
        self.reason = reason
        self._on_begin(reply)

    def _end(self) -> None:
        if self.reason is not None:
            log.info("definitions can be changed again")
            self.reason = None
            self._on_end()
