"""A home's configuration, derived from the home's copies after etcd has lost it.

Each copy records the newest configuration that it knows. The newest recorded configuration names the replicas that have
all complete commits; among these, the replica with the longest log leads. A member without a received record may know a
newer configuration, by which a replica of the former set lacks complete commits. The records of all members of the
newest configuration are therefore required, except of nodes that an operator has declared lost for good.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from jumpmq.replication.configuration import Configuration, ReplicaId, node_of

EPOCHS = 1000
"""Number of epochs skipped after the highest promised epoch: a claim may be ahead of all promises."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A replica's copy of a home, as offered to the other members.

    Attributes:
        replica: identity of the replica.
        promised: highest promised epoch.
        end: epoch of its last segment, and the end position of its log.
        known: last known configuration.
    """

    replica: ReplicaId
    promised: int
    end: tuple[int, int]
    known: Configuration


class NotRebuilt(Exception):
    """The configuration cannot be derived yet; the text names the missing records."""


def rebuilt(offers: Sequence[Offer], lost: Collection[str] = ()) -> Configuration:
    """Return the configuration with which a home continues.

    Args:
        offers: the received offers, at least one.
        lost: nodes that an operator has declared lost.

    Raises:
        NotRebuilt: members are missing, or all remaining replicas lack complete commits.
    """
    newest = max((offer.known for offer in offers), key=lambda known: (known.epoch, known.v))
    missing = {*newest.members} - {node_of(offer.replica) for offer in offers} - {*lost}
    if missing:
        raise NotRebuilt(f"what node {_named(missing)} has of it is not known")
    offers = [offer for offer in offers if node_of(offer.replica) in newest.members]
    able = [offer for offer in offers if offer.replica in newest.electable]
    if not offers or (not able and not {node_of(one) for one in newest.electable} <= {*lost}):
        raise NotRebuilt(f"all that was confirmed is at node {_named(map(node_of, newest.electable))}, on a lost disk")
    best = max(able or offers, key=lambda offer: (offer.end, node_of(offer.replica) == newest.seat))
    return replace(
        newest,
        v=newest.v + EPOCHS,
        epoch=max(newest.epoch, *(offer.promised for offer in offers)) + EPOCHS,
        leader=best.replica,
        set=(best.replica,),
        eligible=(),
    )


def _named(nodes: Iterable[str]) -> str:
    return ", ".join(f"'{node}'" for node in sorted({*nodes}))
