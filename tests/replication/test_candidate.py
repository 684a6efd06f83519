"""A candidate waits for a longer log while octets keep arriving, and requests no octets twice."""

from jumpmq.replication.actions import Drop, Note, Send, Sync
from jumpmq.replication.configuration import Configuration
from jumpmq.replication.copies import Copy
from jumpmq.replication.frames import Answer, Ask, Beat, Data, Fetch, Resign
from jumpmq.replication.lineage import Stretch, position_at
from jumpmq.replication.pace import Pace, Times
from jumpmq.replication.replica import Replica

SHORT, LONG = Stretch(1, 1, 10, 100), Stretch(1, 1, 10, 400)


def test_a_source_that_sends_is_not_asked_again_and_one_that_sends_no_more_is_left() -> None:
    replica = Replica(Copy("a.1", 1, 0, (SHORT,)))
    pace = Pace(replica, 0.0, Times())

    def ticked(since: float, until: float) -> list[object]:
        ticks = [since + number / 4 for number in range(round((until - since) * 4))]
        actions = [action for at in ticks for action in pace.tick(at)]
        return [one for one in actions if not (isinstance(one, Send) and isinstance(one.frame, Beat))]

    replica.on_connected("b.1")
    value = Configuration(2, "log", "a", 2, 1, ("a", "b"), 2, "a.1", ("a.1", "b.1"))
    assert replica.on_value(value) == [Note(2, 0)]
    assert replica.on_noted(2, 0) == [Send("b.1", Ask(2))]
    assert replica.on_frame("b.1", Answer(2, (LONG,))) == [Send("b.1", Fetch(2, position_at(1, 100)))]
    for number in range(2):
        assert ticked(number * 2.5, number * 2.5 + 2.5) == []
        replica.on_frame("b.1", Data(2, position_at(1, 100 * number + 100), bytes(100)))
    assert ticked(5.0, 8.0) == []
    assert ticked(8.0, 8.25) == [Drop("b.1")]
    assert replica.on_disconnected("b.1") == [Sync()], "nobody else has more"


def test_a_replica_that_leadership_was_handed_to_waits_for_no_answer_of_the_former_leader() -> None:
    before = Configuration(2, "log", "a", 2, 1, ("a", "b", "c"), 1, "a.1", ("a.1", "b.1", "c.1"))
    for value, asked in ((before.handed("b.1"), {"c.1"}), (before.claimed("b.1"), {"a.1", "c.1"})):
        replica = Replica(Copy("b.1", 1, 0, (SHORT,)))
        replica.on_connected("a.1")
        replica.on_connected("c.1")
        replica.on_value(before)
        replica.on_value(value)
        actions = replica.on_noted(2, 0)
        assert {one.to for one in actions if isinstance(one, Send)} == asked


def test_a_leader_that_resigned_is_not_waited_for() -> None:
    replica = Replica(Copy("b.1", 1, 0, (SHORT,)))
    replica.on_connected("a.1")
    replica.on_value(before := Configuration(2, "log", "a", 2, 1, ("a", "b"), 1, "a.1", ("a.1", "b.1")))
    replica.on_frame("a.1", Resign(1))
    replica.on_value(before.claimed("b.1"))
    assert not [one for one in replica.on_noted(2, 0) if isinstance(one, Send)]
