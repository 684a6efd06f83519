"""Homes with copies in a cluster that etcd has lost.

The cluster starts again with the definitions in a node's copy (``--recover-cluster``), which is read without a write.
Each process then publishes, in etcd, its copies of homes that the recovered cluster lacks. The process whose copy
should lead a home creates the home's configuration (:mod:`jumpmq.replication.rebuilding`).
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.etcd.client import Etcd, EtcdError, absent, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.etcd.settings import EtcdSettings
from jumpmq.nodes.joining.joining import Membership, applied_entry, member_value, recover_cluster, set_back
from jumpmq.nodes.log.snapshots import SnapshotHead, read_snapshot
from jumpmq.nodes.membership.cluster_etcd import answered_at_start
from jumpmq.nodes.replicas.copy_directory import NOTE, Noted
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, ConfigurationError
from jumpmq.replication.lineage import end_of
from jumpmq.replication.rebuilding import NotRebuilt, Offer, rebuilt
from jumpmq.replication.wanted import Wanted
from jumpmq.store.errors import StoreError
from jumpmq.store.inspection import read_definitions
from jumpmq.store.lineage import read_lineage
from jumpmq.topology import Topology

LOOK_INTERVAL = 1.0
"""Seconds between two polls for the offers of other processes."""

log = logging.getLogger(__name__)


async def require_cluster(config: Config, me: Membership) -> None:
    """Wait for etcd. If etcd has lost the cluster of a member, create the cluster again from the definitions in the
    member's copy, provided that the settings ask for it.

    Raises:
        BrokerError: the settings do not ask for it, and no other process of the node serves meanwhile.
        StoreError: the definitions cannot be read.
    """
    assert config.data_dir is not None
    etcd, keys = EtcdSettings.of(config, me.id).client(), Keys(me.cluster)
    try:
        if await answered_at_start(lambda: etcd.get(keys.id)) is not None:
            return
        found = await asyncio.to_thread(read_definitions, config.data_dir)
        if config.recover_cluster:
            await answered_at_start(lambda: recover_cluster(etcd, keys, me, found))
        elif config.workers == 1 or config.begins:
            raise BrokerError(f"{set_back(me.cluster, 0)}; the last entry of the log here is {applied_entry(found)}")
    finally:
        await etcd.close()


class Rebuilding:
    """Homes missing in a recovered cluster, rebuilt from copies of this process.

    Args:
        etcd: the client.
        keys: of the cluster.
        me: the process.
        directories: directories of the process's own home, and of copies of others.
        is_ours: comparison that is true if etcd has this cluster.
        without: comma-separated names of nodes that are lost with their disks.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        me: Membership,
        directories: tuple[Path, Path],
        is_ours: dict[str, Any],
        without: str | None,
    ) -> None:
        self._etcd, self._keys, self._me, self._is_ours = etcd, keys, me, is_ours
        own, copies = directories
        found = {int(path.name): path for path in copies.glob("*") if path.name.isdigit()} if me.worker == 1 else {}
        found[me.home] = own
        self._directories = {home: path for home, path in found.items() if (path / NOTE).exists()}
        self._lost = [name.strip() for name in (without or "").split(",") if name.strip()]
        self._offers: dict[int, Offer] = {}  # local copies, by home
        self._logged: dict[int, str] = {}  # logged reasons for the wait, by home
        self._snapshot = b"", frozenset[int]()  # head of the last snapshot read, and the homes in it
        self._lease = 0

    async def run(self) -> None:
        """Publish local copies, and create the configurations of homes to be led here, until etcd has all homes with
        a copy here.
        """
        while True:
            try:
                if await self._is_done():
                    return
            except EtcdError as error:
                log.info("homes that etcd has lost wait: %s", error)
            await asyncio.sleep(LOOK_INTERVAL)

    async def _is_done(self) -> bool:
        if await self._etcd.get(self._keys.recovery) is None:
            return True
        there = {int(one.key.removeprefix(self._keys.all_homes)) for one in await self._values(self._keys.all_homes)}
        missing = {home: path for home, path in self._directories.items() if home not in there}
        missing = {home: missing[home] for home in missing.keys() & await self._defined()} if missing else {}
        for home in missing.keys() - self._offers.keys():
            if (offer := await asyncio.to_thread(_offer, missing[home], self._me.node)) is not None:
                self._offers[home] = offer
        self._offers = {home: offer for home, offer in self._offers.items() if home in missing}
        if not self._offers:
            if self._lease:
                await self._etcd.revoke(self._lease)
            return True
        await self._announce()
        offers, lost = await self._all_offers()
        for home, offer in self._offers.items():
            await self._rebuild(home, offer, offers[home], lost)
        return False

    async def _values(self, folder: str) -> list[Any]:
        return list((await self._etcd.folder(folder)).values)

    async def _defined(self) -> frozenset[int]:
        """Return the homes of the recovered cluster; other homes were removed."""
        head = await self._etcd.get(self._keys.snapshot_head)
        if head is None:
            return frozenset()
        if head.value != self._snapshot[0]:  # the snapshot may be large, and this is repeated while members are missing
            topology = Topology("", home=0, shared=True)
            topology.restore(await read_snapshot(self._etcd, self._keys, SnapshotHead.read(head.value)))
            self._snapshot = head.value, frozenset(topology.homes)
        return self._snapshot[1]

    async def _announce(self) -> None:
        if self._lease and await self._etcd.keep_alive(self._lease):
            return
        self._lease = await self._etcd.grant(LEASE)
        value = {"lost": self._lost, "homes": {home: _to_json(one) for home, one in self._offers.items()}}
        key, member = self._keys.rebuilding + self._me.process, self._keys.member(self._me.process)
        await self._etcd.transaction([self._is_ours], [put(key, json.dumps(value), self._lease)])
        if self._me.home in self._offers:  # etcd has lost the list of members, too
            mine = put(member, member_value(self._me.home, self._me))
            await self._etcd.transaction([self._is_ours, absent(member)], [mine])

    async def _all_offers(self) -> tuple[dict[int, list[Offer]], set[str]]:
        """Return the copies offered by processes, by home, and the nodes that an operator has declared lost."""
        offers: dict[int, list[Offer]] = {home: [offer] for home, offer in self._offers.items()}
        lost = {*self._lost}
        for one in await self._values(self._keys.rebuilding):
            said = json.loads(one.value)
            lost |= {*map(str, said["lost"])}
            if one.key.removeprefix(self._keys.rebuilding) != self._me.process:
                for home, offer in said["homes"].items():
                    offers.setdefault(int(home), []).append(_from_json(offer))
        return offers, lost

    async def _rebuild(self, home: int, offer: Offer, offers: list[Offer], lost: set[str]) -> None:
        try:
            found = rebuilt([one for one in offers if one.known.log == offer.known.log], lost)
        except NotRebuilt as problem:
            if self._logged.get(home) != str(problem):
                log.warning(
                    "home %d waits, as etcd has lost it: %s. Start that node, or where its disk is lost, any other one "
                    "with --recover-without", home, problem,
                )  # fmt: skip
            self._logged[home] = str(problem)
            return
        if found.leader != offer.replica:
            return
        wanted = Wanted(found.copies, found.min, found.members)  # etcd has lost the operator's wish, too
        puts = [
            put(self._keys.home(home), found.to_json()),
            put(self._keys.led(home), str(found.epoch)),
            put(self._keys.wanted(home), wanted.to_json()),
        ]
        if (await self._etcd.transaction([self._is_ours, absent(self._keys.home(home))], puts))[0]:
            log.warning("home %d, which etcd had lost, goes on with the copy of node '%s'", home, self._me.node)


def _offer(directory: Path, node: str) -> Offer | None:
    """Return a directory's copy of a home as an offer; None if unreadable."""
    try:
        noted = Noted.decode((directory / NOTE).read_bytes())
        read = read_lineage(directory, noted.mark)
        replica = f"{node}.{noted.disk}"
        known = Configuration.from_json(noted.known) if noted.known else Configuration.first(noted.log, replica)
    except (OSError, StoreError, ConfigurationError, ValueError, KeyError, TypeError) as error:
        log.error("the copy in %s cannot be read: %s", directory, error)
        return None
    if read.damaged:
        log.error("the copy in %s is damaged, and the home does not go on with it", directory)
        return None
    end = (read.lineage[-1].epoch if read.lineage else 0), max(end_of(read.lineage), noted.mark)
    return Offer(replica, noted.epoch, end, known)


def _to_json(offer: Offer) -> list[Any]:
    return [offer.replica, offer.promised, offer.end, offer.known.to_json().decode()]


def _from_json(value: list[Any]) -> Offer:
    replica, promised, (epoch, position), known = value
    return Offer(str(replica), int(promised), (int(epoch), int(position)), Configuration.from_json(known))
