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
Open        a segment that another leader began is created at the end       ``on_synced``, in time
Append      octets written at the end                                       ``on_synced``, in time
Begin       a segment of the own epoch, with a random salt, begun, synced   ``on_begun``
Ship        the log sent to a replica, from a position on                   —
Fill        the same up to the end that the log has now, then FETCHED       —
Reveal      complete commits go to the worker and to the index              —
Serve       the store is opened: the epoch's leader serves                  —
Close       the epoch is over: clients and worker end, nothing is shipped   ``on_closed``
Drop        the connection to a replica is closed                           —
Renew       another identity for this disk: it lost octets                  a new replica
Stop        the process ends (R9)                                           —
Alarm       operators are told                                              —
==========  ==============================================================  =============================
"""

from typing import NamedTuple

from jumpmq.replication.configuration import Configuration, Replica
from jumpmq.replication.frames import Frame
from jumpmq.replication.lineage import Stretch


class Send(NamedTuple):
    to: Replica
    frame: Frame


class Swap(NamedTuple):
    old: Configuration
    new: Configuration


class Read(NamedTuple):
    """The value has at least this version and epoch, or etcd was set back."""

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
    to: Replica
    position: int


class Fill(NamedTuple):
    to: Replica
    position: int
    epoch: int


class Reveal(NamedTuple):
    position: int


class Serve(NamedTuple):
    epoch: int


class Close(NamedTuple):
    reason: str


class Drop(NamedTuple):
    peer: Replica


class Renew(NamedTuple):
    reason: str


class Stop(NamedTuple):
    reason: str


class Alarm(NamedTuple):
    reason: str


Action = (
    Send | Swap | Read | Note | Cut | Sync | Open | Append | Begin | Ship | Fill | Reveal | Serve | Close | Drop
    | Renew | Stop | Alarm
)  # fmt: skip
