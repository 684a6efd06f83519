"""The configuration of a home in etcd: reads, and changes by compare-and-swap of the value's octets."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from jumpmq.nodes.etcd.client import Etcd, EtcdError, absent, get, has, put
from jumpmq.replication.actions import Read, Swap
from jumpmq.replication.configuration import Configuration, ConfigurationError

log = logging.getLogger(__name__)


class ConfigurationKey:
    """The key of a home in etcd, with the home's configuration as value.

    Args:
        etcd: the client.
        key: key of the home's configuration.
        same: further comparisons of each swap, such as the identity of the cluster.
        led: key that has only the epoch, for comparisons.
    """

    def __init__(self, etcd: Etcd, key: str, same: Sequence[dict[str, Any]] = (), led: str = "") -> None:
        self._etcd = etcd
        self._key = key
        self._same = list(same)
        self._led = led

    async def read(self) -> Configuration | None:
        """Return the current value in etcd; None for a missing key.

        Raises:
            EtcdError: etcd does not answer, or has a value that this release cannot parse.
        """
        found = await self._etcd.get(self._key)
        return None if found is None else _parsed(found.value)

    async def swap(
        self, old: Configuration | None, new: Configuration, also: Sequence[dict[str, Any]] = ()
    ) -> Configuration | None:
        """Change the value from ``old`` to ``new``, or create it if ``old`` is None.

        Args:
            also: further changes in the same transaction.

        Returns:
            The value in etcd after the request: ``new``, or the value that prevented the change.

        Raises:
            EtcdError: the outcome is unknown: the change may have taken effect, or may take effect later.
        """
        same = absent(self._key) if old is None else has(self._key, old.to_json())
        puts = [put(self._key, new.to_json()), *also]
        if self._led:
            puts.append(put(self._led, str(new.epoch)))
        done, read = await self._etcd.transaction([*self._same, same], puts, [get(self._key)])
        if done:
            return new
        return _parsed(read[0].values[0].value) if read[0].values else None


class ConfigurationRequests:
    """Requests of a replica to etcd; the answers come through callbacks.

    Args:
        key: the configuration in etcd.
        number: number of the home.
        on_value: called with the answer to a swap.
        on_read: called with the answer to a read.
        alarm: called for a missing configuration.
    """

    def __init__(
        self,
        key: ConfigurationKey,
        number: int,
        on_value: Callable[[Configuration], None],
        on_read: Callable[[Configuration, Read], None],
        alarm: Callable[[str], None],
    ) -> None:
        self._key = key
        self._number = number
        self._on_value = on_value
        self._on_read = on_read
        self._alarm = alarm
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop calling the callbacks."""
        for task in self._tasks:
            task.cancel()

    def swap(self, swap: Swap) -> None:
        """Request a change of the configuration. ``on_value`` is not called if etcd does not answer."""
        self._run(self._swap(swap))

    def read(self, read: Read) -> None:
        """Request the configuration."""
        self._run(self._read(read))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _swap(self, swap: Swap) -> None:
        try:
            value = await self._key.swap(swap.old, swap.new)
        except EtcdError as error:
            log.info("home %d: etcd has not answered a change of the configuration: %s", self._number, error)
            return
        if value is not None:
            self._on_value(value)

    async def _read(self, read: Read) -> None:
        try:
            value = await self._key.read()
        except EtcdError as error:
            log.info("home %d: the configuration cannot be read: %s", self._number, error)
            return
        if value is None:
            self._alarm(f"etcd has no configuration of home {self._number}")
        else:
            self._on_read(value, read)


def _parsed(octets: bytes) -> Configuration:
    try:
        return Configuration.from_json(octets)
    except ConfigurationError as error:
        raise EtcdError(f"etcd has a configuration of a home that cannot be read: {error}") from None
