"""Removal of a node from its cluster, without an unnoticed loss of confirmed messages.

A removed node never returns with its data. The removal is therefore refused if only the node may have all confirmed
messages of a home. The transaction that appends the removal to the log of definitions compares the state found by the
check: the configurations of the homes concerned, and the absence of the node's processes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.etcd.client import Found, absent, end_of, get, has
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.timing import LEASE
from jumpmq.replication.configuration import Configuration, node_of
from jumpmq.topology import ForgetNode, Topology
from jumpmq.topology.definitions import home_of


@dataclass(frozen=True, slots=True)
class Removal:
    """Removal of a node, proposed at this node.

    Attributes:
        keys: the cluster's keys in etcd.
        node: the node to remove.
        kept: number of durable queues at each home of the node, also of queues on the way from the home.
        others: the other nodes of the cluster.
        accepts_loss: True if the operator accepts the loss of the node's own messages.
    """

    keys: Keys
    node: str
    kept: Mapping[int, int]
    others: frozenset[str]
    accepts_loss: bool

    @classmethod
    def of(cls, keys: Keys, topology: Topology, change: ForgetNode) -> "Removal | None":
        """Return the removal of a node; None for a node outside the cluster, or for an unchecked removal."""
        homes = topology.nodes.get(change.node)
        if homes is None or change.loss == "unchecked":
            return None
        kept = dict.fromkeys(homes, 0)
        for host in topology.vhosts.values():
            for declared in host.declared.values():
                definition = declared.definition
                at = {definition.home, home_of(definition.before) if definition.before else definition.home}
                for home in at & kept.keys() if definition.is_kept else ():
                    kept[home] += 1
        others = frozenset(topology.nodes.keys() - {change.node})
        return cls(keys, change.node, kept, others, change.loss == "accepted")

    @property
    def reads(self) -> list[dict[str, Any]]:
        """Reads of a transaction, with results for :meth:`refusal` and :meth:`same`."""
        folders = self.keys.all_homes, self.keys.live, self.keys.copies
        return [get(folder, end_of(folder)) for folder in folders]

    def refusal(self, read: Sequence[Found], served: Collection[int] = ()) -> str:
        """Return the reason for a refusal, for operators, from the results of :attr:`reads`; empty for none.

        Args:
            served: homes of the node that another node serves; the caller checks these homes.
        """
        if self._runs(read):
            return (
                f"node '{self.node}' runs: the node must be stopped first. After a kill etcd notices the end in "
                f"{LEASE} seconds"
            )
        said = [json.loads(one.value) for one in read[2].values]
        reasons = []
        for home, known in sorted(self._homes(read).items()):
            able = self._others_of(home, known, said)
            running = {str(one["node"]) for one in said if home not in one.get("closed", ())} & able
            damaged = {str(one["node"]) for one in said if home in one.get("damaged", ())}
            if home in served:
                continue
            if home in self.kept:
                reasons.append(self._own(home, known, able, running))
            elif self._is_complete_here(known) and (not able or (able <= damaged and not self.accepts_loss)):
                reasons.append(self._other(home, known, able))
        return "; ".join(filter(None, reasons))

    def _own(self, home: int, known: Configuration, able: set[str], running: set[str]) -> str:
        """Return the reason against the end of a home of the node; empty for none."""
        queues = f"durable queues: {self.kept[home]}"
        if running:
            wait = "wait for its new leader (jumpmqctl list_copies)"
            if known.short:
                wait = f"start nodes with copies, or `jumpmqctl set_copies {known.copies} --home {home} --min 1`"
            return (
                f"{_nodes(running)} {_has(running)} all confirmed messages of home {home} ({queues}), and no node "
                f"serves the home yet: {wait}, then drain node '{self.node}'"
            )
        if self.accepts_loss or not self.kept[home]:
            return ""
        if able:
            return (
                f"{_nodes(able)} {_has(able)} all confirmed messages of home {home} ({queues}), and must be started "
                f"first; or accept the loss of the messages (--yes)"
            )
        behind = {one for one in known.members if one in self.others}
        force = f", or give up a part of them with `jumpmq force-leader {home}` at {_nodes(behind)}" if behind else ""
        return (
            f"node '{self.node}' has the only complete copy of its home {home} ({queues}), whose messages would be "
            f"lost: start the node and drain it{force}, or accept the loss (--yes)"
        )

    def _other(self, home: int, known: Configuration, damaged: set[str]) -> str:
        """Return the reason against the loss of the node's copy of another node's home."""
        whose = f"home {home} of node '{known.seat}'"
        if damaged:
            return (
                f"the copies of {whose} at {_nodes(damaged)} are damaged, and the copy at node '{self.node}' may be "
                f"undamaged: start node '{self.node}', or accept the loss of the copy (--yes)"
            )
        behind = {one for one in known.members if one in self.others}
        force = f", or give up messages with `jumpmq force-leader {home}` at {_nodes(behind)}" if behind else ""
        return (
            f"node '{self.node}' has the only complete copy of {whose}, whose messages would be lost: start node "
            f"'{self.node}' until another copy is in the set{force}"
        )

    def same(self, read: Sequence[Found]) -> list[dict[str, Any]]:
        """Return comparisons for a transaction: the state of :meth:`refusal` has not changed."""
        found = {one.key: one.value for one in read[0].values}
        homes = {home for home, known in self._homes(read).items() if self._is_complete_here(known)} | {*self.kept}
        keys = [self.keys.home(home) for home in sorted(homes)]
        unchanged = [has(key, found[key]) if key in found else absent(key) for key in keys]
        ended = self.keys.copies_of(self.node)
        return [*unchanged, absent(ended), absent(f"{ended}/", end_of(f"{ended}/"))]

    def _runs(self, read: Sequence[Found]) -> bool:
        """Return True if etcd knows a running process of the node. The key ``live/NODE`` of a home that another node
        serves belongs to that node's process.
        """
        homes, (live, copies) = self._homes(read), read[1:]
        if any(self._is_own(one.key.removeprefix(self.keys.copies)) for one in copies.values):
            return True
        own = (one for one in live.values if self._is_own(one.key.removeprefix(self.keys.live)))
        served = (int(json.loads(one.value)["home"]) for one in own)
        return any(home in homes and node_of(homes[home].leader) == self.node for home in served)

    def _is_own(self, process: str) -> bool:
        return process == self.node or process.startswith(f"{self.node}/")

    def _homes(self, read: Sequence[Found]) -> dict[int, Configuration]:
        """Return the configurations of all homes, by number.

        Raises:
            ConfigurationError: etcd has a configuration that this release does not know.
        """
        folder = self.keys.all_homes
        return {int(one.key.removeprefix(folder)): Configuration.from_json(one.value) for one in read[0].values}

    def _others_of(self, home: int, known: Configuration, said: Sequence[dict[str, Any]]) -> set[str]:
        """Return the other nodes with all confirmed messages of a home: not a node with a new disk in place of a lost
        one.

        Args:
            said: announcements of processes.
        """
        opened = ((str(one["node"]), one.get("replicas", {}).get(str(home))) for one in said)
        announced = {node: str(replica) for node, replica in opened if replica is not None}
        found = (one for one in known.electable if announced.get(node_of(one), one) == one)
        return {node_of(one) for one in found} & self.others

    def _is_complete_here(self, known: Configuration) -> bool:
        return self.node in map(node_of, known.electable)


def _nodes(names: set[str]) -> str:
    quoted = ", ".join(f"'{name}'" for name in sorted(names))
    return f"{'node' if len(names) == 1 else 'nodes'} {quoted}"


def _has(names: set[str]) -> str:
    return "has" if len(names) == 1 else "have"
