"""Observations of a home's copies: ages of lags, and changes by configuration."""

from jumpmq.nodes.copies.observed import ObservedCopies
from jumpmq.replication.configuration import Configuration


def test_a_lag_is_as_old_as_the_oldest_octets_that_are_not_stored() -> None:
    observed = ObservedCopies()
    observed.on_stored(100, {"b.1": 100, "c.1": 100}, 10.0)
    assert observed.lag_seconds == {"b.1": 0.0, "c.1": 0.0}
    observed.on_stored(200, {"b.1": 100, "c.1": 200}, 11.0)
    observed.on_stored(300, {"b.1": 100, "c.1": 250}, 12.0)
    assert observed.lag_seconds == {"b.1": 1.0, "c.1": 0.0}
    observed.on_stored(300, {"b.1": 200, "c.1": 300}, 15.0)
    assert observed.lag_seconds == {"b.1": 3.0, "c.1": 0.0}
    observed.on_stored(300, {"b.1": 300}, 16.0)
    assert observed.lag_seconds == {"b.1": 0.0}


def test_changes_of_set_and_leader_are_counted_once() -> None:
    observed = ObservedCopies()
    alone = Configuration.first("log", "a.1").with_member("b").with_member("c")
    three = alone.having(["b.1", "c.1"])
    handed = three.handed("b.1")
    claimed = handed.claimed("c.1")
    again = claimed.claimed("c.1")
    for before, after in ((alone, three), (three, handed), (handed, three), (handed, claimed), (claimed, again)):
        observed.on_configuration(before, after)
    changes = observed.changes
    assert (changes.joined, changes.left, changes.handovers, changes.failovers) == (2, 1, 1, 2)
