"""Conditions under which a leader reports commits complete."""

from jumpmq.replication.actions import Apply
from jumpmq.replication.configuration import Configuration
from jumpmq.replication.copies import Copy
from jumpmq.replication.leader import Leader
from jumpmq.replication.lineage import Stretch, position_at


def test_commits_that_waited_for_a_joiner_are_complete_when_it_is_dropped() -> None:
    """Commits that waited for a dropped joiner are complete at once: the next event may never come."""
    copy = Copy("a.1", 4, 0, (Stretch(1, 4, 0, 64),))
    value = Configuration(1, "log", "a", 2, 1, ("a", "b"), 4, "a.1", ("a.1",))
    leader = Leader(copy, value, position_at(1, 0))
    leader.advance()
    leader.on_matched("b.1", 0)
    assert not leader.join("b.1")
    leader.on_written(position_at(1, 100))
    assert not leader.on_synced(position_at(1, 100))
    assert Apply(position_at(1, 100)) in leader.remove(["b.1"])
