"""Wishes for the copies of homes, at ``wanted/HOME`` in etcd: of operators, or from the settings of the home's seat.

Any node writes a wish; the process that leads the home changes the home's configuration towards it, step by step.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence, Set

from jumpmq.nodes.etcd.client import EtcdError, absent, has, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.membership.cluster_etcd import ClusterEtcd
from jumpmq.nodes.replicas.copied_home import CopiedHome
from jumpmq.replication.configuration import Configuration, ConfigurationError
from jumpmq.replication.wanted import Wanted

ATTEMPTS = 10
"""Maximum number of attempts to change a wish. An attempt fails if another node has changed the wish meanwhile."""

log = logging.getLogger(__name__)


class Wishes:
    """Wishes for all homes, as last seen in etcd.

    Args:
        etcd: etcd of the cluster.
        keys: keys of the cluster.
    """

    def __init__(self, etcd: ClusterEtcd, keys: Keys) -> None:
        self._etcd = etcd
        self._keys = keys
        self._wanted: dict[int, Wanted] = {}  # by number of the home

    @property
    def homes(self) -> Set[int]:
        """Numbers of the homes with a wish."""
        return self._wanted.keys()

    def of(self, home: int) -> Wanted | None:
        """Return the wish for a home; None without a wish."""
        return self._wanted.get(home)

    def leader_of(self, home: int) -> str:
        """Return the node that should lead a home by an operator's request; empty for the home's seat."""
        wanted = self._wanted.get(home)
        return "" if wanted is None else wanted.leader

    def take(self, name: str, value: bytes | None) -> None:
        """Process a value of the watched folder: the number of the home, and the wish or None."""
        if value is None:
            self._wanted.pop(int(name), None)
            return
        try:
            self._wanted[int(name)] = Wanted.from_json(value)
        except (ConfigurationError, ValueError) as error:
            log.error("home %s: %s", name, error)

    async def change(self, home: int, make: Callable[[Wanted | None], Wanted]) -> None:
        """Change the wish for a home. Concurrent changes by other nodes are kept.

        Args:
            make: returns the new wish, given the present wish, or None without a wish; called again if another node
                has changed the wish meanwhile.

        Raises:
            ConfigurationError: raised by ``make``, or etcd has no valid wish.
            EtcdError: etcd does not answer, or :data:`ATTEMPTS` attempts have failed.
        """
        key = self._keys.wanted(home)
        for _ in range(ATTEMPTS):
            found = await self._etcd.client.get(key)
            wanted = make(None if found is None else Wanted.from_json(found.value))
            same = absent(key) if found is None else has(key, found.value)
            done, _ = await self._etcd.client.transaction([self._etcd.is_ours, same], [put(key, wanted.to_json())])
            if done:
                self._wanted[home] = wanted
                return
        raise EtcdError(f"the wish for home {home} is being changed by other nodes")

    async def replace(self, home: int, before: Wanted, wanted: Wanted) -> None:
        """Replace the wish for a home. Does nothing if the wish has changed in etcd, or etcd does not answer: the
        caller calls again later.
        """
        key = self._keys.wanted(home)
        same = [self._etcd.is_ours, has(key, before.to_json())]
        with contextlib.suppress(EtcdError):
            done, _ = await self._etcd.client.transaction(same, [put(key, wanted.to_json())])
            if done:
                self._wanted[home] = wanted

    async def begin(self, home: int, seat: str, nodes: Sequence[str], copies: int, racks: Mapping[str, str]) -> None:
        """Set a home's first wish: the number of copies in the settings of the home's seat. Does nothing while the
        cluster has fewer nodes.

        Args:
            nodes: names of the reachable nodes, in the order of joining.
        """
        if home in self._wanted or not 1 < copies <= len(nodes):
            return
        wanted, key = Wanted.of(seat, nodes, copies, racks=racks), self._keys.wanted(home)
        with contextlib.suppress(EtcdError):  # the next call retries
            await self._etcd.client.transaction([self._etcd.is_ours, absent(key)], [put(key, wanted.to_json())])

    def step(self, copied: CopiedHome, known: Configuration) -> None:
        """Change the configuration of a locally led home by one step towards the wish."""
        if (wanted := self._wanted.get(copied.number)) is None:
            return
        try:
            if (step := wanted.next_step(known)) is not None:
                copied.change(lambda current: step)
        except ConfigurationError as error:
            log.warning("home %d: %s", copied.number, error)
