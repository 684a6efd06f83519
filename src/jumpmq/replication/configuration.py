"""Configuration of a home: the single value in etcd, and the changes allowed by compare-and-swap.

Each method that changes a configuration returns the value to swap in, with the next version. Versions only increase, so
that no value occurs twice. Of all swaps prepared from one value, at most one lands.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

ReplicaId = str
"""Identity of a copy, ``NODE.DISK``: a node that returns with a new disk is a new replica."""


class ConfigurationError(ValueError):
    """An invalid configuration value, or a change that the rules forbid; the text is for operators."""


def node_of(replica: ReplicaId) -> str:
    """Return the node of a replica."""
    return replica.rpartition(".")[0]


def default_min(copies: int) -> int:
    """Return the number of copies that have to store a commit, by the number of copies: 1 → 1, 2 → 1, 3 → 2, 5 → 3."""
    return (copies + 1) // 2


@dataclass(frozen=True, slots=True)
class Configuration:
    """Replication state of a home, as stored in etcd.

    Attributes:
        v: version, incremented by each change.
        log: identity of the log; distinguishes this home from the home of another cluster with an equal number.
        seat: node that the home belongs to.
        copies: wanted number of copies.
        min: number of replicas in the set below which nothing becomes complete.
        members: nodes that should have a copy; the seat first.
        epoch: number of the leader's life; each life of a leading process is a new epoch.
        leader: replica that writes the log in this epoch.
        set: replicas that have to store a commit before it is complete, by rank; includes the leader.
        eligible: replicas that left the set when it fell below `min`. No commit has become complete since then: these
            replicas have all complete commits, and may take over. Empty while the set has `min` replicas.
    """

    v: int
    log: str
    seat: str
    copies: int
    min: int
    members: tuple[str, ...]
    epoch: int
    leader: ReplicaId
    set: tuple[ReplicaId, ...]
    eligible: tuple[ReplicaId, ...] = ()

    @classmethod
    def first(cls, log: str, leader: ReplicaId) -> Self:
        """Return the configuration of a new home with one copy."""
        seat = node_of(leader)
        return cls(1, log, seat, 1, 1, (seat,), 1, leader, (leader,))

    @classmethod
    def from_json(cls, octets: bytes | str) -> Self:
        """Parse etcd's value.

        Raises:
            ConfigurationError: the value was not written by :meth:`to_json`, or contradicts itself.
        """
        try:
            value = json.loads(octets)
        except ValueError as error:
            raise ConfigurationError(f"a home's configuration is not JSON: {error}") from None
        names = {field.name: field.type for field in fields(cls)}
        if not isinstance(value, dict) or value.keys() != names.keys():
            raise ConfigurationError(f"a home's configuration has exactly the fields {', '.join(names)}")
        for name, kind in names.items():
            value[name] = _checked(name, kind, value[name])
        configuration = cls(**value)
        if problem := configuration.problem():
            raise ConfigurationError(problem)
        return configuration

    def to_json(self) -> bytes:
        """Encode the configuration for etcd. Equal configurations have equal octets, because swaps compare octets."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def problem(self) -> str:
        """Return a description of the contradiction in this value; empty for a valid value (I14)."""
        if self.v < 1 or self.epoch < 1 or not 1 <= self.min <= self.copies:
            return "version and epoch begin at 1, and min is from 1 to copies"
        if self.leader not in self.set:
            return f"the leader {self.leader} is not in the set"
        replicas = self.set + self.eligible
        if len({*replicas}) != len(replicas):
            return "a replica is named twice in set and eligible"
        if self.eligible and not self.short:
            return "the set has min replicas, and yet others are eligible"
        if len({*self.members}) != len(self.members):
            return "a member is named twice"
        if strangers := [one for one in replicas if node_of(one) not in self.members]:
            return f"{strangers[0]} is not of a member"
        return ""

    @property
    def short(self) -> bool:
        """True if the set is below `min`, so that nothing becomes complete."""
        return len(self.set) < self.min

    @property
    def electable(self) -> tuple[ReplicaId, ...]:
        """Replicas with all complete commits, by rank."""
        return self.set + self.eligible

    # --- swaps of the leader ---

    def renewed(self) -> Self:
        """Return an equal configuration with the next version. When it lands, every swap prepared from the present
        value fails (R3).
        """
        return replace(self, v=self.v + 1)

    def without(self, leaving: Iterable[ReplicaId], lost: Iterable[ReplicaId] = ()) -> Self:
        """Return the configuration without some replicas in the set (R2).

        Args:
            leaving: overdue replicas; they stay eligible if the set falls below `min`.
            lost: replicas that have lost stored octets; never eligible.
        """
        lost = {*lost}
        gone = {*leaving} | lost
        if self.leader in gone:
            raise ConfigurationError("the leader does not leave the set; another replica takes over")
        # The order of the set is the rank of claims, and stays.
        stay = tuple(one for one in self.set if one not in gone)
        left = (*self.eligible, *(one for one in self.set if one in gone))
        return self._settled(set=stay, eligible=tuple(one for one in left if one not in lost))

    def having(self, joining: Iterable[ReplicaId]) -> Self:
        """Return the configuration with further replicas in the set. These must be replicas of members, and have all
        complete commits (R2).
        """
        new = tuple(sorted({*joining} - {*self.set}))
        if strangers := [one for one in new if node_of(one) not in self.members]:
            raise ConfigurationError(f"{strangers[0]} is not of a member")
        return self._settled(set=self.set + new, eligible=tuple(one for one in self.eligible if one not in new))

    def resized(self, copies: int, least: int) -> Self:
        """Change the number of copies, and the number that must store a commit."""
        if not 1 <= least <= copies:
            raise ConfigurationError(f"min is from 1 to copies, which is {copies}; not {least}")
        return self._settled(copies=copies, min=least)

    def with_member(self, node: str) -> Self:
        """Add a node for a further copy. The node's replica joins the set once the copy exists (I16)."""
        if node in self.members:
            raise ConfigurationError(f"{node} is a member already")
        return self._settled(members=(*self.members, node))

    def without_member(self, node: str) -> Self:
        """Remove a node (I16). The node's replica leaves the set in the same swap, and is no longer eligible.

        Raises:
            ConfigurationError: the node leads or is no member; or without the node, the members or the set would be
                fewer than `min`.
        """
        if node not in self.members or node == node_of(self.leader):
            raise ConfigurationError(f"{node} leads" if node in self.members else f"{node} is not a member")
        if len(self.members) <= self.min:
            raise ConfigurationError(
                f"without {node} there would be {len(self.members) - 1} of at least {self.min} members"
            )
        stay = tuple(one for one in self.set if node_of(one) != node)
        # A set below `min` already may lose a node that is not in the set.
        if len(stay) < min(self.min, len(self.set)):
            raise ConfigurationError(f"without {node} the set would have {len(stay)} of at least {self.min} replicas")
        return self._settled(
            members=tuple(one for one in self.members if one != node),
            set=stay,
            eligible=tuple(one for one in self.eligible if node_of(one) != node),
        )

    def handed(self, target: ReplicaId) -> Self:
        """Return the configuration with another replica of the set as the leader, in a new epoch. The set does not
        change.
        """
        if target not in self.set or target == self.leader:
            raise ConfigurationError(f"{target} is not a follower in the set")
        return replace(self, v=self.v + 1, epoch=self.epoch + 1, leader=target)

    def is_handed_by(self, before: Self) -> bool:
        """Return True if the leader of a configuration gave leadership away by a hand-over, in the next version."""
        return self.leader in before.set and self.leader != before.leader and self == before.handed(self.leader)

    # --- the swap of a candidate ---

    def claimed(self, me: ReplicaId) -> Self:
        """Give leadership to an electable replica, in a new epoch (R4).

        The old leader leaves the set, unless it is the claimer; it stays eligible if the set is below `min`. A claimer
        that was eligible is alone in the new set. Replicas of the former set may have longer logs: their further
        commits are not complete, and have to be truncated before these replicas join.

        Raises:
            ConfigurationError: the claimer may lack complete commits.
        """
        if me not in self.electable:
            raise ConfigurationError(f"{me} is neither in the set nor eligible")
        stay = tuple(one for one in self.set if me == self.leader or one != self.leader) if me in self.set else (me,)
        left = tuple(one for one in self.electable if one not in stay)
        return self._settled(epoch=self.epoch + 1, leader=me, set=stay, eligible=left)

    # --- the swap of an operator ---

    def forced(self, me: ReplicaId) -> Self:
        """Give leadership to any member's copy, in a new epoch, after the loss of all copies with all complete commits.

        Commits missing in the copy are lost, even if one of the lost copies returns: its log does not match the new
        leader's. `min` is 1 until more copies exist.

        Raises:
            ConfigurationError: the copy does not belong to a member.
        """
        if node_of(me) not in self.members:
            raise ConfigurationError(f"{node_of(me)} is not a member: {', '.join(self.members)} are")
        return replace(self, v=self.v + 1, epoch=self.epoch + 1, leader=me, set=(me,), eligible=(), min=1)

    def _settled(self, **changes: Any) -> Self:
        """Return the next version with changes; `eligible` is emptied if the set has `min` replicas."""
        value = replace(self, v=self.v + 1, **changes)
        return value if value.short else replace(value, eligible=())


def _checked(name: str, kind: Any, value: Any) -> Any:
    """Return a field of the JSON form, checked against the dataclass's type."""
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        return value
    if kind not in (int, str) and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ConfigurationError(f"{name} of a home's configuration is not of its type: {value!r}")
