"""Copies of a cluster's homes, as operators see and change them: see :class:`~jumpmq.broker.copies.Copies`."""

from dataclasses import replace

from jumpmq.broker.copies import CopiesRefused, CopiesUnavailable, CopyState, HomeCopies
from jumpmq.nodes.copies.node_copies import NodeCopies
from jumpmq.nodes.copies.wanted import Wanted
from jumpmq.nodes.etcd.client import EtcdError
from jumpmq.replication.configuration import Configuration, ConfigurationError, node_of
from jumpmq.topology import Topology


class OperatedCopies:
    """Copies of all homes, at any process of the cluster.

    Args:
        copies: those of the process.
        topology: knows the nodes and homes.
    """

    def __init__(self, copies: NodeCopies, topology: Topology) -> None:
        self._copies = copies
        self._topology = topology

    def listed(self) -> list[HomeCopies]:
        return [self._of(home, known) for home, known in sorted(self._copies.known.items())]

    def _of(self, home: int, known: Configuration) -> HomeCopies:
        nodes = self._copies.nodes
        states: dict[str, CopyState] = dict.fromkeys(known.members, "away")
        states |= {node: "joining" for node in known.members if node in nodes}
        states |= {node_of(one): "eligible" for one in known.eligible if node_of(one) in nodes}
        states |= {node_of(one): "in set" for one in known.set if node_of(one) in nodes}
        if (leader := node_of(known.leader)) in nodes:
            states[leader] = "leader"
        wanted = self._copies.wanted(home)
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
            wanted_leader="" if wanted is None else wanted.leader,
            lag_octets={node_of(one): octets for one, octets in self._copies.lags_of(home).items()},
            racks={node: rack for node, rack in self._copies.racks.items() if rack and node in states},
            troubles={node: text for node, text in self._copies.troubles_of(home).items() if node in states},
        )

    async def set_copies(self, home: int, copies: int, least: int | None = None) -> None:
        seat = self._seat_of(home)
        try:
            wanted = Wanted.of(seat, list(self._topology.nodes), copies, least, self._copies.racks)
        except ConfigurationError as error:
            raise CopiesRefused(str(error)) from None
        await self._want(home, wanted)

    async def set_leader(self, home: int, node: str | None) -> None:
        self._seat_of(home)
        wanted = self._copies.wanted(home)
        if wanted is None or len(wanted.members) < 2:
            raise CopiesRefused(f"home {home} has no copies that could lead it")
        if node is not None and node not in wanted.members:
            raise CopiesRefused(f"node '{node}' has no copy of home {home}: {', '.join(wanted.members)} have one")
        await self._want(home, replace(wanted, leader=node or ""))

    def _seat_of(self, home: int) -> str:
        if home not in self._topology.homes:
            raise CopiesRefused(f"there is no home {home}")
        return self._topology.node_of(home)

    async def _want(self, home: int, wanted: Wanted) -> None:
        try:
            await self._copies.want(home, wanted)
        except EtcdError as error:
            raise CopiesUnavailable(f"copies cannot be changed: {error}") from None
