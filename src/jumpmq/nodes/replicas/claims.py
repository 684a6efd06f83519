"""The configuration of a home in etcd: read, and changed by compare-and-swap of its octets."""

from collections.abc import Sequence
from typing import Any

from jumpmq.nodes.etcd.client import Etcd, EtcdError, absent, get, has, put
from jumpmq.replication.configuration import Configuration, ConfigurationError


class Claims:
    """Access to the key of a home.

    Args:
        etcd: the client.
        key: of the home's configuration.
        same: further comparisons of each swap, such as the identity of the cluster.
        led: key that gets the epoch alone, for those who compare it.
    """

    def __init__(self, etcd: Etcd, key: str, same: Sequence[dict[str, Any]] = (), led: str = "") -> None:
        self._etcd = etcd
        self._key = key
        self._same = list(same)
        self._led = led

    async def read(self) -> Configuration | None:
        """Return the current value in etcd; None without one.

        Raises:
            EtcdError: etcd cannot be asked, or has a value that this release does not know.
        """
        found = await self._etcd.get(self._key)
        return None if found is None else _parsed(found.value)

    async def swap(self, old: Configuration | None, new: Configuration) -> Configuration | None:
        """Change the value from ``old`` to ``new``, or create it where ``old`` is None.

        Returns:
            The value that etcd has then: ``new``, or another one with which it did not land.

        Raises:
            EtcdError: it may have landed, or may land yet.
        """
        same = absent(self._key) if old is None else has(self._key, old.to_json())
        puts = [put(self._key, new.to_json())]
        if self._led:
            puts.append(put(self._led, str(new.epoch)))
        done, read = await self._etcd.transaction([*self._same, same], puts, [get(self._key)])
        if done:
            return new
        return _parsed(read[0].values[0].value) if read[0].values else None


def _parsed(octets: bytes) -> Configuration:
    try:
        return Configuration.from_json(octets)
    except ConfigurationError as error:
        raise EtcdError(f"etcd has a configuration of a home that cannot be read: {error}") from None
