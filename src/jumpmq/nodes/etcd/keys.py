"""Keys of a cluster in etcd, in the folder ``/jumpmq/NAME/``.

=====================  ==============================================================================================
``format``             version of the log, and of the rules that decide the outcome of changes; each append compares it
``id``                 identity of the cluster, also stored in each member's data directory
``secret``             the secret that the ends of links prove to each other
``recovered``          first entry of the log after a recovery of the cluster from a node's definitions
``recovery``           identity of that recovery, of the recovery followed before by the node, and the node's last entry
``homes``              last home number assigned
``members/NODE``       a node's home, and the identity of its data directory; for its second worker ``members/NODE/2``,
                       and so on
``home/H``             state of a home (:class:`~jumpmq.replication.configuration.Configuration`): its epoch,
                       incremented by each start of its process, and the leader; each write compares the whole value
``led/H``              epoch of a home with copies, as in ``home/H``, which also changes with the set
``wanted/H``           an operator's wish for the copies of a home; the leader changes ``home/H`` accordingly, in steps
``rebuilding/NODE``    copies that a process offers for homes lost by etcd, or ``rebuilding/NODE/2``; deleted with the
                       process
``copies/NODE``        address of a process for copies, or ``copies/NODE/2``; deleted with the process
``live/NODE``          address of a process for links, and its epoch, or ``live/NODE/2``; deleted some seconds after the
                       end of the process
``applied/NODE``       last entry applied by a process that lacks links to live homes, or ``applied/NODE/2``
``served/NODE``        last start of a process, or ``served/NODE/2``; an older process of the data directory ends
``seen/NODE``          state of a process's disk within the last minute, or ``seen/NODE/2``: its start, its commit
``lost/ID/NODE``       last entry of a running node of the cluster with identity ID, while etcd lacks the entry
``log/NUMBER``         entries of the log of changes, 20 digits
``snapshot-head``      last entry in the snapshot, the place of its chunks, and the first entry kept
``snapshot/FOLDER/I``  chunks of the snapshot: all records of definitions, compressed
=====================  ==============================================================================================

Values are sealed where the nodes have a secret (:mod:`~jumpmq.nodes.etcd.sealing`).
"""

from dataclasses import dataclass

FORMAT = "1"
"""Version of the format spoken by the current release."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a cluster.

    Attributes:
        cluster: name of the cluster.
    """

    cluster: str

    @property
    def all(self) -> str:
        """Return the folder of all keys."""
        return self._key("")

    def _key(self, name: str) -> str:
        return f"/jumpmq/{self.cluster}/{name}"

    @property
    def format(self) -> str:
        return self._key("format")

    @property
    def id(self) -> str:
        return self._key("id")

    @property
    def secret(self) -> str:
        return self._key("secret")

    @property
    def recovered(self) -> str:
        return self._key("recovered")

    @property
    def recovery(self) -> str:
        return self._key("recovery")

    @property
    def homes(self) -> str:
        return self._key("homes")

    @property
    def members(self) -> str:
        return self._key("members/")

    def member(self, process: str) -> str:
        return self.members + process

    @property
    def live(self) -> str:
        return self._key("live/")

    def live_node(self, process: str) -> str:
        return self.live + process

    def home(self, home: int) -> str:
        return self._key(f"home/{home}")

    @property
    def all_homes(self) -> str:
        return self._key("home/")

    def led(self, home: int) -> str:
        return self._key(f"led/{home}")

    @property
    def all_wanted(self) -> str:
        return self._key("wanted/")

    def wanted(self, home: int) -> str:
        return f"{self.all_wanted}{home}"

    @property
    def rebuilding(self) -> str:
        return self._key("rebuilding/")

    @property
    def copies(self) -> str:
        return self._key("copies/")

    def copies_of(self, process: str) -> str:
        return self.copies + process

    @property
    def applied(self) -> str:
        return self._key("applied/")

    def applied_by(self, process: str) -> str:
        return self.applied + process

    def served(self, process: str) -> str:
        return self._key("served/") + process

    def seen(self, process: str) -> str:
        return self._key("seen/") + process

    @property
    def lost(self) -> str:
        return self._key("lost/")

    def lost_of(self, identity: str) -> str:
        return f"{self.lost}{identity}/"

    @property
    def log(self) -> str:
        return self._key("log/")

    def entry(self, number: int) -> str:
        return f"{self.log}{number:020}"

    @property
    def snapshot_head(self) -> str:
        return self._key("snapshot-head")

    @property
    def snapshots(self) -> str:
        return self._key("snapshot/")

    def snapshot(self, folder: str) -> str:
        return f"{self.snapshots}{folder}/"


def is_of_any_identity(key: str) -> bool:
    """Return True if a key is read before the cluster's identity is known, or contains an identity."""
    return key.split("/")[3:4] in (["format"], ["id"], ["lost"])


def number_of(entry: str) -> int:
    """Return the number of an entry, from the entry's key."""
    return int(entry.rpartition("/")[2])
