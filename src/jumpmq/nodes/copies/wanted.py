"""An operator's wish for the copies of a home, and the next step of the home's configuration towards it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

from jumpmq.replication.configuration import Configuration, ConfigurationError, default_min, node_of

MOST = 7
"""Maximum number of copies: a confirm waits for all copies in the set."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wish of an operator for the copies of a home.

    Attributes:
        copies: number of copies, the leader's log included.
        min: number of copies that have to store a commit.
        members: nodes that have them.
        leader: node that is to lead; empty for the home's seat, as soon as it may.
    """

    copies: int
    min: int
    members: tuple[str, ...]
    leader: str = ""

    @classmethod
    def of(cls, seat: str, nodes: Sequence[str], copies: int, least: int | None = None) -> Self:
        """Return a wish for so many copies of a home: at the seat, and at the following nodes in the order of joining.

        Args:
            nodes: all of the cluster, in the order of joining.
            least: number of copies that have to store a commit; None for half of the copies, rounded up.

        Raises:
            ConfigurationError: there are not so many nodes, or the numbers contradict each other.
        """
        if not 1 <= copies <= MOST:
            raise ConfigurationError(f"a home has 1 to {MOST} copies, not {copies}")
        if copies > len(nodes):
            raise ConfigurationError(f"{copies} copies need as many nodes, and the cluster has {len(nodes)}")
        least = default_min(copies) if least is None else least
        if not 1 <= least <= copies:
            raise ConfigurationError(f"min is from 1 to copies, which is {copies}; not {least}")
        at = nodes.index(seat) if seat in nodes else 0
        ring = [*nodes[at:], *nodes[:at]]
        return cls(copies, least, tuple([seat, *(one for one in ring if one != seat)][:copies]))

    @classmethod
    def from_json(cls, octets: bytes) -> Self:
        """Parse etcd's value.

        Raises:
            ConfigurationError: the value is not one that :meth:`to_json` writes.
        """
        try:
            value = json.loads(octets)
            return cls(int(value["copies"]), int(value["min"]), tuple(map(str, value["members"])), str(value["leader"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"wanted copies cannot be read: {error}") from None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def next_step(self, value: Configuration) -> Configuration | None:
        """Return the next configuration on the way to the wish; None if the wish is met, or no step is possible yet.

        Members come first, and go last: the numbers change when enough replicas are in the set (I16).
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
