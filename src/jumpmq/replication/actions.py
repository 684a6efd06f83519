"""Actions: requests of a replica to its surroundings, and the events in answer.

==========  ==============================================================  =============================
action      done by the surroundings                                        answered by
==========  ==============================================================  =============================
Send        a frame on the connection to a replica, if there is one         —
Swap        compare-and-swap of etcd's value; the whole old value compares  ``on_value``, or never
Read        a linearizable read of etcd's value                             ``on_read``
Note        epoch and complete mark into ``replica``, synced                ``on_noted``
Cut         the log truncated at a position, synced                         ``on_cut``
Sync        the log synced                                                  ``on_synced``
Open        creation, at the log's end, of a segment begun by another       ``on_synced``, in time
Append      octets written at the end                                       ``on_synced``, in time
Begin       a segment of the own epoch, with a random salt, synced          ``on_begun``
Ship        the log sent to a replica, from a position on, with new writes  —
Fill        the log sent up to its current end; then FETCHED                —
Apply       complete commits go to the store and to the index               —
Serve       the store is opened: the epoch's leader serves                  —
Close       end of the epoch: clients and store end, shipping stops         ``on_closed``
Drop        the connection to a replica is closed                           —
Renew       a new identity for this disk, which lost octets                 a new replica
Stop        the process ends (R9)                                           —
Alarm       a message to operators                                          —
==========  ==============================================================  =============================
"""

from typing import NamedTuple

from jumpmq.replication.configuration import Configuration, ReplicaId
from jumpmq.replication.frames import Frame
from jumpmq.replication.lineage import Stretch


class Send(NamedTuple):
    to: ReplicaId
    frame: Frame


class Swap(NamedTuple):
    old: Configuration
    new: Configuration


class Read(NamedTuple):
    """Read etcd's value. A result below this version or epoch shows that etcd was reset to an older state."""

    v: int
    epoch: int


class Note(NamedTuple):
    epoch: int
    mark: int


class Cut(NamedTuple):
    position: int


class Sync(NamedTuple):
    pass


class Open(NamedTuple):
    stretch: Stretch


class Append(NamedTuple):
    position: int
    octets: bytes


class Begin(NamedTuple):
    segment: int
    epoch: int


class Ship(NamedTuple):
    to: ReplicaId
    position: int


class Fill(NamedTuple):
    to: ReplicaId
    position: int
    epoch: int


class Apply(NamedTuple):
    position: int


class Serve(NamedTuple):
    epoch: int


class Close(NamedTuple):
    reason: str


class Drop(NamedTuple):
    peer: ReplicaId


class Renew(NamedTuple):
    reason: str


class Stop(NamedTuple):
    reason: str


class Alarm(NamedTuple):
    reason: str


Action = (
    Send | Swap | Read | Note | Cut | Sync | Open | Append | Begin | Ship | Fill | Apply | Serve | Close | Drop
    | Renew | Stop | Alarm
)  # fmt: skip
