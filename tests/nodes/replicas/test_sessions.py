"""ReplicaSessions of replicas on the links of two homes: begun by a HELLO of both sides, and again after a drop."""

import asyncio

from tests.nodes.homes import in_loop, until
from tests.nodes.replicas.parties import Party, two

from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.records import REPLICA
from jumpmq.replication.frames import HEAD, LENGTH, Hello, Resign, Stored, encode
from jumpmq.replication.lineage import Stretch, position_at
from jumpmq.replication.needs import octets_behind


@in_loop
async def test_a_session_begins_when_both_sides_have_joined_and_carries_frames_of_its_home() -> None:
    async with two() as (first, second):
        one, other, another = Party("n1.a"), Party("n2.b"), Party("n2.c")
        first.join(7, one)
        second.join(8, another)
        await until(lambda: (7, 1) in second._sessions)
        assert not one.told and not first.send(7, "n2.b", Resign(1))
        second.join(7, other)
        await until(lambda: one.told and other.told)
        assert (one.told, other.told, another.told) == (["+n2.b"], ["+n1.a"], [])
        assert first.send(7, "n2.b", Stored(3, 64)) and not first.send(7, "n2.c", Stored(3, 64))
        await until(lambda: len(other.told) == 2)
        assert other.told[1] == ("n1.a", Stored(3, 64))


@in_loop
async def test_a_dropped_session_begins_again_on_the_same_link() -> None:
    async with two(Timing(session_pause=0.01)) as (first, second):
        one, other = Party("n1.a"), Party("n2.b")
        first.join(7, one)
        second.join(7, other)
        await until(lambda: one.told and other.told)
        first.drop(7, "n2.b")
        assert not first.send(7, "n2.b", Resign(1)), "nothing goes on in the old one"
        await until(lambda: len(one.told) == len(other.told) == 3)
        assert one.told == ["+n2.b", "-n2.b", "+n2.b"] and other.told == ["+n1.a", "-n1.a", "+n1.a"]
        second._links.to(1).close()  # type: ignore[union-attr]
        await until(lambda: len(one.told) == len(other.told) == 5)
        assert one.told[3:] == ["-n2.b", "+n2.b"]


@in_loop
async def test_hellos_that_cross_those_of_a_restarted_replica_come_to_an_end() -> None:
    """HELLOs that cross a restarted replica's end soon (regression: a thousand a second, without end)."""
    async with two() as (first, second):
        one, other = Party("n1.a"), Party("n2.c")
        first.join(7, one)
        second.join(7, Party("n2.b"))
        second.leave(7)
        second.join(7, other)
        await until(lambda: len(one.told) >= 3 and other.told)
        await asyncio.sleep(0.3)
        assert (one.told, other.told) == (["+n2.b", "-n2.b", "+n2.c"], ["+n1.a"])
        first.send(7, "n2.c", Resign(1))
        second.send(7, "n1.a", Resign(2))
        await until(lambda: one.told[3:] == [("n2.c", Resign(2))] and other.told[1:] == [("n1.a", Resign(1))])


@in_loop
async def test_a_replica_that_restarts_before_its_session_begins_has_one_session() -> None:
    async with two() as (first, second):
        one, other = Party("n1.a"), Party("n2.b")
        second.join(7, other)
        second.leave(7)
        await until(lambda: (7, 2) in first._sessions)
        second.join(7, other)
        first.join(7, one)
        await until(lambda: one.told and other.told)
        await asyncio.sleep(0.1)
        assert (one.told, other.told) == (["+n2.b"], ["+n1.a"])


@in_loop
async def test_a_replica_of_another_node_or_version_gets_no_session() -> None:
    async with two() as (first, second):
        one = Party("n1.a")
        first.join(7, one)
        link = second._links.to(1)
        assert link is not None
        for frame in Hello(0, 1, 1, "n3.b"), Hello(0, 2, 3, "n2.b"), Stored(1, 64), Hello(0, 1, 1, "n2.last"):
            link.send_at_once(REPLICA, encode(7, frame))
        await until(lambda: one.told)
        assert one.told == ["+n2.last"]


@in_loop
async def test_a_hello_that_is_earlier_than_the_news_of_its_node_begins_a_session_with_the_news() -> None:
    nodes = {1: "n1"}
    async with two(Timing(session_pause=0.01), lambda home: nodes.get(home, "")) as (first, second):
        one, other = Party("n1.a"), Party("n2.b")
        first.join(7, one)
        second.join(7, other)
        await until(lambda: other.told)
        second.send(7, "n1.a", Resign(1))  # dropped: the session is not up at the other side
        await asyncio.sleep(0.05)
        assert (one.told, other.told) == ([], ["+n1.a"])
        nodes[2] = "n2"
        await until(lambda: one.told and len(other.told) == 3)
        await asyncio.sleep(0.05)
        assert (one.told, other.told) == (["+n2.b"], ["+n1.a", "-n1.a", "+n1.a"])
        second.send(7, "n1.a", Resign(2))
        await until(lambda: one.told[1:] == [("n2.b", Resign(2))])


@in_loop
async def test_frames_of_a_later_release_are_passed_over_and_the_session_goes_on() -> None:
    async with two() as (first, second):
        one, other = Party("n1.a"), Party("n2.b")
        first.join(7, one)
        second.join(7, other)
        await until(lambda: one.told and other.told)
        link = second._links.to(1)
        assert link is not None
        unknown = HEAD.pack(HEAD.size - LENGTH.size + 3, 99, 7, 1) + b"new"
        for octets in (unknown, encode(7, Stored(1, 64)), unknown):
            link.send_at_once(REPLICA, octets)
        second.send(7, "n1.a", Stored(1, 128))
        await until(lambda: len(one.told) == 3)
        assert one.told == ["+n2.b", ("n2.b", Stored(1, 64)), ("n2.b", Stored(1, 128))]
        assert second._links.to(1) is link


def test_octets_behind_a_position_are_counted_over_segments() -> None:
    log = (Stretch(2, 1, 0, 100), Stretch(3, 1, 0, 50), Stretch(5, 2, 0, 70))
    assert octets_behind(log, 0) == 220
    assert octets_behind(log, position_at(2, 40)) == 180
    assert octets_behind(log, position_at(3, 50)) == 70
    assert octets_behind(log, position_at(4, 0)) == 70
    assert octets_behind(log, position_at(5, 70)) == 0
