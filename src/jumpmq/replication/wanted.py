"""An operator's wish for the copies of a home, and the next step of the home's configuration towards it."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Self

from jumpmq.replication.configuration import Configuration, ConfigurationError, default_min, node_of

MOST = 7
"""Maximum number of copies: a confirm waits for all copies in the set."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wish of an operator for the copies of a home.

    Attributes:
        copies: number of copies, including the leader's log.
        min: number of copies that have to store a commit.
        members: nodes with a copy, the home's seat first; one node more than ``copies`` while another node substitutes
            for the seat.
        leader: node that should lead once it has the whole log. Empty for the home's seat, once that is possible. The
            seat is named explicitly until it leads.
    """

    copies: int
    min: int
    members: tuple[str, ...]
    leader: str = ""

    @classmethod
    def of(
        cls,
        seat: str,
        nodes: Sequence[str],
        copies: int,
        least: int | None = None,
        racks: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Return a wish for a number of copies of a home: at the seat, and at further nodes in the order of joining.
        Nodes in racks with fewer copies come first.

        Args:
            nodes: all nodes of the cluster, in the order of joining.
            least: number of copies that have to store a commit; None for half of the copies, rounded up.
            racks: racks of nodes, as far as known.

        Raises:
            ConfigurationError: too few nodes, or contradictory numbers.
        """
        if not 1 <= copies <= MOST:
            raise ConfigurationError(f"a home has 1 to {MOST} copies, not {copies}")
        if copies > len(nodes):
            raise ConfigurationError(f"{copies} copies need as many nodes, and the cluster has {len(nodes)}")
        least = default_min(copies) if least is None else least
        if not 1 <= least <= copies:
            raise ConfigurationError(f"min is from 1 to copies, which is {copies}; not {least}")
        members = [seat]
        while len(members) < copies and (node := _next_member(seat, nodes, members, racks)) is not None:
            members.append(node)
        return cls(copies, least, tuple(members))

    def with_member(self, node: str) -> Self:
        """Return the wish for a further copy, at a node.

        Raises:
            ConfigurationError: the node has a copy already, or the home has the maximum number of copies.
        """
        if node in self.members:
            raise ConfigurationError(f"node '{node}' has a copy already")
        if len(self.members) == MOST:
            raise ConfigurationError(f"a home has 1 to {MOST} copies, not {MOST + 1}")
        members, substitute = self.members[: self.copies], self.members[self.copies :]
        return self._resized(self.copies + 1, (*members, node, *substitute))

    def without_member(self, node: str) -> Self:
        """Return the wish without the copy of a node.

        Raises:
            ConfigurationError: the node is the home's seat, or has no copy.
        """
        if node not in self.members:
            raise ConfigurationError(f"node '{node}' has no copy")
        if node == self.members[0]:
            raise ConfigurationError(f"the home belongs to node '{node}', which always has a copy of it")
        is_substitute = node in self.members[self.copies :]
        members = tuple(one for one in self.members if one != node)
        resized = self._resized(self.copies if is_substitute else self.copies - 1, members)
        return replace(resized, leader="" if self.leader == node else self.leader)

    def _resized(self, copies: int, members: tuple[str, ...]) -> Self:
        """Return the wish for a different number of copies. A minimum set by an operator is kept."""
        least = default_min(copies) if self.min == default_min(self.copies) else min(self.min, copies)
        return replace(self, copies=copies, min=least, members=members)

    @classmethod
    def from_json(cls, octets: bytes) -> Self:
        """Parse etcd's value.

        Raises:
            ConfigurationError: the value was not written by :meth:`to_json`.
        """
        try:
            value = json.loads(octets)
            return cls(int(value["copies"]), int(value["min"]), tuple(map(str, value["members"])), str(value["leader"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"wanted copies cannot be read: {error}") from None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def replaced(
        self, known: Configuration, nodes: Sequence[str], gone: Collection[str], racks: Mapping[str, str]
    ) -> Self | None:
        """Return the wish with another node in place of a lost node; None if nothing has to be changed now.

        A lost seat stays a member: another node substitutes for the seat until the seat is in the set again. Only one
        change is made at a time.

        Args:
            known: configuration of the home.
            nodes: candidates for a copy, in the order of joining.
            gone: lost nodes.
            racks: of nodes, as far as known.
        """
        if {*known.members} != {*self.members}:
            return None
        seat, *others = self.members
        has_substitute = len(self.members) > self.copies
        if has_substitute and seat in map(node_of, known.set):
            return replace(self, members=self.members[:-1])
        lost = next((one for one in others if one in gone), seat if seat in gone and not has_substitute else None)
        staying = [one for one in self.members if one != lost]
        spare = _next_member(seat, [one for one in nodes if one != lost], staying, racks)
        if lost is None or spare is None:
            return None
        if lost == seat:
            return replace(self, members=(*self.members, spare))
        members = tuple(spare if one == lost else one for one in self.members)
        return replace(self, members=members, leader="" if self.leader == lost else self.leader)

    def next_step(self, value: Configuration) -> Configuration | None:
        """Return the next configuration on the way to the wish; None if the wish is met, or no step is possible yet.

        Members are added before the number of copies grows, and removed after it has shrunk. The numbers change when
        enough replicas are in the set (I16).
        """
        for node in self.members:
            if node not in value.members:
                return value.with_member(node)
        if len(value.set) >= self.min and (value.copies, value.min) != (self.copies, self.min):
            return value.resized(self.copies, self.min)
        staying = [one for one in value.set if node_of(one) in self.members]
        for node in value.members:
            is_leader = node == node_of(value.leader)
            if node not in self.members and not is_leader and len(staying) >= max(self.min, value.min):
                return value.without_member(node)
        return None


def _next_member(seat: str, nodes: Sequence[str], members: Sequence[str], racks: Mapping[str, str]) -> str | None:
    """Return the node for a further copy: the next node behind the seat, of the nodes in racks with the fewest copies;
    None without such a node.

    A node without a rack counts as a rack of its own.
    """
    at = nodes.index(seat) if seat in nodes else 0
    used = Counter(racks.get(one) or one for one in members)
    left = [one for one in (*nodes[at:], *nodes[:at]) if one not in members]
    return min(left, key=lambda one: used[racks.get(one) or one], default=None)
