"""A configuration lost from etcd is rebuilt from the copies' knowledge, never from a copy that lacks messages."""

from dataclasses import replace

import pytest

from jumpmq.replication.configuration import Configuration
from jumpmq.replication.rebuilding import EPOCHS, NotRebuilt, Offer, rebuilt

KNOWN = Configuration(
    v=9, log="log", seat="a", copies=3, min=2, members=("a", "b", "c"), epoch=4, leader="b.1", set=("b.1", "c.1")
)
OLD = replace(KNOWN, v=7, epoch=3, leader="a.1", set=("a.1", "b.1", "c.1"))


def offer(replica: str, position: int, known: Configuration = KNOWN, epoch: int = 4) -> Offer:
    return Offer(replica, known.epoch, (epoch, position), known)


def test_the_longest_log_of_the_newest_set_leads_in_a_later_epoch() -> None:
    found = rebuilt([offer("a.1", 500, OLD, 3), offer("b.1", 100), offer("c.1", 120)])
    assert (found.leader, found.set, found.members, found.min) == ("c.1", ("c.1",), ("a", "b", "c"), 2)
    assert found.epoch == 4 + EPOCHS and found.v > KNOWN.v


def test_a_promise_of_a_later_epoch_counts() -> None:
    late = Offer("a.1", 8, (3, 500), OLD)
    assert rebuilt([late, offer("b.1", 100), offer("c.1", 100)]).epoch == 8 + EPOCHS


def test_nothing_is_decided_before_all_members_were_heard() -> None:
    """Nothing is decided before all members answered: a missing member may know of complete commits."""
    with pytest.raises(NotRebuilt, match="what node 'b', 'c' has of it is not known"):
        rebuilt([offer("a.1", 500, OLD, 3)])
    assert rebuilt([offer("a.1", 500, OLD, 3)], lost=["b", "c"]).leader == "a.1", "an operator has said so"


def test_a_member_with_a_new_disk_has_nothing() -> None:
    offers = [offer("a.1", 500, OLD, 3), offer("b.2", 0, KNOWN, 0), offer("c.2", 0, KNOWN, 0)]
    with pytest.raises(NotRebuilt, match="all that was confirmed is at node 'b', 'c', on a lost disk"):
        rebuilt(offers)
    assert rebuilt([*offers[:2], offer("c.1", 7)]).leader == "c.1"
    assert rebuilt(offers, lost=["b", "c"]).leader == "a.1"


def test_files_of_a_node_that_is_no_member_any_more_count_for_nothing() -> None:
    stale = offer("d.1", 900, replace(OLD, members=("a", "b", "d"), set=("a.1", "d.1")), 3)
    assert rebuilt([stale, offer("a.1", 5), offer("b.1", 10), offer("c.1", 9)]).leader == "b.1"
    with pytest.raises(NotRebuilt):
        rebuilt([stale, offer("e.1", 5)], lost=["a", "b", "c"])


def test_an_eligible_copy_leads_where_the_set_is_lost() -> None:
    short = replace(KNOWN, set=("b.1",), eligible=("c.1",))
    offers = [offer("a.1", 500, OLD, 3), offer("c.1", 90, short)]
    assert rebuilt(offers, lost=["b"]).leader == "c.1"
