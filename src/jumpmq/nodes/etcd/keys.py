"""Keys of a cluster in etcd, in the folder ``/jumpmq/NAME/``.

=====================  ==============================================================================================
``format``             version of the log, and of the rules that decide outcomes: entries are appended under the same
``id``                 the cluster's identity, which each member's data directory keeps too
``secret``             what the ends of links prove to each other that they know
``recovered``          the entry that the log began with when a node's definitions took the place of what was lost
``recovery``           its identity, that of the recovery that this node had followed, and the node's last entry
``homes``              the last number that was given to a home
``members/NODE``       the home of a node, and what tells its data directory from others of that name; of its second
                       worker ``members/NODE/2``, and so on
``home/H``             state of a home (:class:`~jumpmq.replication.configuration.Configuration`): its epoch, one more
                       with each start of its process, and the leader; written only where the whole value is unchanged
``led/H``              epoch of the leader of a home with copies: the one in ``home/H``, which also changes with its set
``wanted/H``           copies that an operator wants of a home; its leader brings ``home/H`` there, step by step
``rebuilding/NODE``    what the process of a node has of homes that etcd has lost, or ``rebuilding/NODE/2``; gone with
                       the process
``copies/NODE``        where the process of a node takes connections for copies, or ``copies/NODE/2``; gone with it
``live/NODE``          where the node's links are taken, and the epoch, or ``live/NODE/2``; gone some seconds after the
                       process is
``applied/NODE``       the last entry that a process without links to all that live has applied, or ``applied/NODE/2``
``served/NODE``        the last start of a process, or ``served/NODE/2``: an older process of its data directory ends
``seen/NODE``          what a process has on disk, as of a minute ago, or ``seen/NODE/2``: which start, which commit
``lost/ID/NODE``       the last entry of a running node of the cluster with that identity, where etcd lacks the entry
``log/NUMBER``         entries of the log of changes, 20 digits
``snapshot-head``      which entry the snapshot has applied, where its chunks are, and the first entry that is kept
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
        cluster: its name.
    """

    cluster: str

    @property
    def all(self) -> str:
        """The folder of all keys."""
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
