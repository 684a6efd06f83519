"""The operators' view of a cluster's copies: see :class:`~jumpmq.broker.copies.Copies`."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

from jumpmq.broker.copies import CopiesRefused, CopiesUnavailable, CopyFiles, CopyPositions, CopyState, HomeCopies
from jumpmq.nodes.copies.node_copies import NodeCopies
from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.joining.forgetting import Removal
from jumpmq.nodes.replicas.copied_home import CopiedHome
from jumpmq.queues import clock
from jumpmq.replication.configuration import Configuration, ConfigurationError, node_of
from jumpmq.replication.lineage import cut_to
from jumpmq.replication.needs import lags
from jumpmq.replication.wanted import Wanted
from jumpmq.store import comparing
from jumpmq.topology import ForgetNode, Topology


class OperatedCopies:
    """Copies of all homes, at any process of the cluster.

    Args:
        copies: the copies of the process.
        topology: the nodes and homes of the cluster.
    """

    def __init__(self, copies: NodeCopies, topology: Topology) -> None:
        self._copies = copies
        self._topology = topology

    def listed(self) -> list[HomeCopies]:
        return [self._of(home, known) for home, known in sorted(self._copies.known.items())]

    def count(self, home: int) -> int:
        """Return the wanted number of copies of a home."""
        wanted, known = self._copies.wishes.of(home), self._copies.known.get(home)
        return wanted.copies if wanted is not None else 1 if known is None else known.copies

    def leader_of(self, home: int) -> str | None:
        known = self._copies.known.get(home)
        return None if known is None else node_of(known.leader)

    def _of(self, home: int, known: Configuration) -> HomeCopies:
        nodes = self._copies.nodes
        states: dict[str, CopyState] = dict.fromkeys(known.members, "away")
        states |= {node: "joining" for node in known.members if node in nodes}
        states |= {node_of(one): "eligible" for one in known.eligible if node_of(one) in nodes}
        states |= {node_of(one): "in set" for one in known.set if node_of(one) in nodes}
        if (leader := node_of(known.leader)) in nodes:
            states[leader] = "leader"
        damaged = self._copies.damaged_at(home) & states.keys()
        troubles = dict.fromkeys(sorted(damaged), "the copy is damaged") | dict(self._copies.troubles_of(home))
        wanted, observed = self._copies.wishes.of(home), self._copies.observed[home]
        copied = self._copied(home)
        leads = copied is not None and copied.roles.leader is not None
        behind = {} if copied is None else lags(copied.roles.leader)
        return HomeCopies(
            home=home,
            seat=known.seat,
            leader=leader,
            epoch=known.epoch,
            copies=known.copies,
            min=known.min,
            members=states,
            wanted_copies=known.copies if wanted is None else wanted.copies,
            wanted_min=known.min if wanted is None else wanted.min,
            wanted_members=known.members if wanted is None else wanted.members,
            wanted_leader="" if wanted is None else wanted.leader,
            lag_octets={node_of(one): octets for one, octets in behind.items()},
            racks={node: rack for node, rack in self._copies.racks.items() if rack and node in states},
            troubles={node: text for node, text in troubles.items() if node in states},
            damaged=frozenset(damaged),
            lag_seconds={node_of(one): round(age, 1) for one, age in observed.lag_seconds.items()} if leads else {},
            lease_left=max(0.0, copied.delivers_until - clock.boot_time()) if copied is not None and leads else None,
            changes=observed.changes,
        )

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        seat = self._seat_of(home)
        try:
            wanted = Wanted.of(seat, self._topology.nodes_by_home, copies, least, self._copies.racks)
        except ConfigurationError as error:
            raise CopiesRefused(str(error)) from None
        await self._change(home, lambda _: wanted)

    async def add_member(self, home: int, node: str) -> None:
        if node not in self._topology.nodes:
            raise CopiesRefused(f"node '{node}' is not in the cluster")
        if node not in self._copies.nodes:
            raise CopiesRefused(f"node '{node}' does not run, or keeps no copies yet")
        seat = self._seat_of(home)
        await self._change(home, lambda wanted: _or_one(wanted, seat).with_member(node))

    async def remove_member(self, home: int, node: str) -> None:
        if self.leader_of(home) == node != self._seat_of(home):
            raise CopiesRefused(
                f"node '{node}' serves home {home}: first transfer the home's leadership to another member, or start "
                f"the home's own node"
            )
        seat = self._seat_of(home)
        await self._change(home, lambda wanted: _or_one(wanted, seat).without_member(node))

    async def _change(self, home: int, make: Callable[[Wanted | None], Wanted]) -> None:
        try:
            await self._copies.wishes.change(home, make)
        except ConfigurationError as error:
            raise CopiesRefused(f"home {home}: {error}") from None
        except EtcdError as error:
            raise CopiesUnavailable(f"copies cannot be changed: {error}") from None

    async def set_leader(self, home: int, node: str | None) -> None:
        self._seat_of(home)

        def make(wanted: Wanted | None) -> Wanted:
            if wanted is None or len(wanted.members) < 2:
                raise CopiesRefused(f"home {home} has no copies that could lead it")
            if node is not None and node not in wanted.members:
                raise CopiesRefused(f"node '{node}' has no copy of home {home}: {', '.join(wanted.members)} have one")
            return replace(wanted, leader=node or "")

        await self._change(home, make)

    async def positions(self, home: int) -> CopyPositions | None:
        if (copied := self._copied(home)) is None:
            return None
        copy = copied.roles.copy
        return CopyPositions(self._copies.me.node, copy.end, copy.stored, copy.complete)

    async def files(self, home: int) -> CopyFiles | None:
        if (copied := self._copied(home)) is None:
            return None
        directory, copy = self._copies.copies[home].directory, copied.roles.copy
        ends = {one.segment: one.end for one in cut_to(copy.lineage, min(copy.complete, copy.end))}
        return CopyFiles(self._copies.me.node, await asyncio.to_thread(comparing.lengths, directory, ends))

    async def checksum(self, home: int, name: str, offset: int, length: int) -> tuple[str, int | None] | None:
        if self._copied(home) is None:
            return None
        directory = self._copies.copies[home].directory
        return self._copies.me.node, await asyncio.to_thread(comparing.checksum, directory, name, offset, length)

    async def is_damaged(self, home: int, name: str, length: int) -> tuple[str, bool] | None:
        if self._copied(home) is None:
            return None
        directory = self._copies.copies[home].directory
        return self._copies.me.node, await asyncio.to_thread(comparing.is_damaged, directory, name, length)

    def _copied(self, home: int) -> CopiedHome | None:
        kept = self._copies.copies.get(home)
        return None if kept is None else kept.home

    async def check_removal(self, node: str, served: Collection[int], *, accepts_loss: bool) -> None:
        change = ForgetNode(node, "accepted" if accepts_loss else "refused")
        removal = Removal.of(Keys(self._copies.me.cluster), self._topology, change)
        if removal is None:
            return
        try:
            refusal = removal.refusal(await self._copies.read(removal.reads), served)
        except (EtcdError, ConfigurationError) as error:
            raise CopiesUnavailable(f"copies cannot be read: {error}") from None
        if refusal:
            raise CopiesRefused(refusal)

    async def end(self, home: int) -> None:
        try:
            await self._copies.end(home)
        except EtcdError as error:
            raise CopiesUnavailable(f"copies cannot be changed: {error}") from None

    def _seat_of(self, home: int) -> str:
        if home not in self._topology.homes:
            raise CopiesRefused(f"there is no home {home}")
        return self._topology.node_of(home)


def _or_one(wanted: Wanted | None, seat: str) -> Wanted:
    """Return the given wish; if None, the wish for one copy at the seat."""
    return Wanted(1, 1, (seat,)) if wanted is None else wanted
