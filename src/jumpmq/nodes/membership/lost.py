"""What etcd lacks of what a running node has applied: it may have lost its data, or been set back to an older state.

Nodes that lack something in etcd say so there, in the folder ``lost``, for as long as they run. Nobody appends to the
log meanwhile, nor makes or joins a cluster of that name: an entry of theirs would take the number of one that is lost.
"""

import json
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.etcd.client import EtcdError, Found, end_of, get
from jumpmq.nodes.log.cluster_log import Entry
from jumpmq.nodes.membership.joining import Membership, knows_more, set_back
from jumpmq.nodes.membership.keys import Keys, number_of


class SetBack(EtcdError):
    """etcd answers, and lacks what this node has applied."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look into etcd.

    Attributes:
        keys, me: the cluster's, and the node.
        number: of the last entry that the node has received; 0 before the first.
        entry: that entry; None where the node has begun with it.
    """

    keys: Keys
    me: Membership
    number: int
    entry: Entry | None

    @property
    def folder(self) -> str:
        """Where nodes say what is lost."""
        return self.keys.lost_of(self.me.id)

    @property
    def key(self) -> str:
        """Where this node does."""
        return self.folder + self.me.process

    @property
    def value(self) -> str:
        """Text of the notice in etcd."""
        return json.dumps({"entry": self.number})

    @property
    def reads(self) -> list[dict[str, Any]]:
        """The reads of one look at etcd, as one transaction."""
        return [
            get(self.keys.id),
            get(self.keys.entry(self.number), end_of(self.keys.log), 1),
            get(self.keys.recovered),
            get(self.folder, end_of(self.folder)),
        ]

    def lacks(self, found: list[Found]) -> tuple[str | None, bool]:
        """What etcd lacks, by what was read: a sentence, or None; and whether the other nodes are to be told."""
        identity, entries, recovered, told = (one.values for one in found)
        if not identity:
            return set_back(self.me.cluster, 0), True
        if identity[0].value.decode() != self.me.id:
            return f"etcd has lost cluster '{self.me.cluster}', and has another one of that name", False
        if recovered and (more := knows_more(self.me, self.number, int(recovered[0].value))) is not None:
            return more, False
        if self.number and (not entries or not self._is_last(number_of(entries[0].key), entries[0].value)):
            return set_back(self.me.cluster, self.number), True
        others = {one.key: int(json.loads(one.value)["entry"]) for one in told if one.key != self.key}
        if others:
            key = max(others, key=lambda one: others[one])
            node = key.removeprefix(self.folder)
            return set_back(self.me.cluster, others[key], f"node '{node}'"), False
        return None, False

    def _is_last(self, number: int, value: bytes) -> bool:
        """Whether the first entry from the node's last one on is that, or behind it where the log was compacted."""
        return number > self.number or self.entry is None or json.loads(value)["id"] == self.entry["id"]
