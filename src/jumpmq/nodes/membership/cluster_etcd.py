"""Requests of the local node to etcd, repeated until etcd answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.etcd.client import Compacted, Etcd, EtcdError, Event, NotSealed, has
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.joining.joining import Membership, SetBack
from jumpmq.nodes.membership.stall import Stall

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES = 0.1, 1.0
"""Initial and maximum pause between two attempts of a request, in seconds."""


async def answered_at_start(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request at the node's start until etcd answers, and log why the start waits.

    Raises:
        BrokerError: etcd's values are sealed with another secret.
    """
    told, pause = "", PAUSES[0]
    while True:
        try:
            return await call()
        except NotSealed as error:
            raise BrokerError(f"{error}") from None
        except EtcdError as error:
            if str(error) != told:
                told = str(error)
                log.warning("the start waits for etcd: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSES[1])


class ClusterEtcd:
    """Access of a cluster's node to etcd.

    Args:
        client: the client of etcd.
        keys: the keys of the cluster.
        me: identity of this node.
        stall: notified of failed requests.
        on_failure: called with the reason when the node cannot be part of the cluster any more; the process has to end.

    Attributes:
        client, keys, me, stall, on_failure: the arguments.
        is_connected: False from a failed request until the next answer.
        failed_at: time of the last change of ``is_connected`` to False, by the loop's clock.
        doubted: set when etcd has to be polled, because it answers again after a failure, or may lack entries.
    """

    def __init__(
        self, client: Etcd, keys: Keys, me: Membership, stall: Stall, on_failure: Callable[[str], None]
    ) -> None:
        self.client = client
        self.keys = keys
        self.me = me
        self.stall = stall
        self.on_failure = on_failure
        self.is_connected = True
        self.failed_at = 0.0
        self.doubted = asyncio.Event()

    @property
    def is_ours(self) -> dict[str, Any]:
        """Comparison for a transaction: true if etcd has the node's cluster, and no other cluster of that name."""
        return has(self.keys.id, self.me.id)

    async def until_answered(self, call: Callable[[], Awaitable[T]], most: float = PAUSES[1]) -> T:
        """Repeat a request until it raises no :class:`EtcdError`.

        Args:
            most: maximum pause between two attempts, in seconds.
        """
        pause = PAUSES[0]
        while True:
            try:
                answer = await call()
            except EtcdError as error:
                if not isinstance(error, SetBack):
                    self.failed(error)
                elif self.stall.set_back is None:
                    self.doubted.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            else:
                self._answered()
                return answer

    async def watched(self, folder: str, revision: int) -> AsyncIterator[list[Event]]:
        """Watch a folder forever. After a break of the watch, all values of the folder are reported as events.

        Args:
            revision: etcd's revision; events after it are reported.
        """
        while True:
            try:
                async for events in self.client.watch(folder, revision + 1):
                    self._answered()
                    yield events
                raise EtcdError(f"etcd at {self.client.url} has ended a watch")
            except EtcdError as error:
                if not isinstance(error, Compacted):
                    self.client.next_member()
                    self.failed(error)
                await asyncio.sleep(PAUSES[0])
            found = await self.until_answered(lambda: self.client.folder(folder))
            revision = found.revision
            yield [Event(one.key, one.value, one.revision) for one in found.values]

    def failed(self, error: EtcdError) -> None:
        """Record a failed request."""
        if self.is_connected:
            self.is_connected = False
            self.failed_at = asyncio.get_running_loop().time()
        self.stall.failed(error)

    def _answered(self) -> None:
        if not self.is_connected:
            self.is_connected = True
            self.doubted.set()
