"""Failures as the operators' documentation describes them, event by event, in the simulated world: S1 to S17."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.replication import stories
from tests.replication.stories import Story
from tests.replication.walks import TIMES

from jumpmq.replication.actions import Read

SEEDS = (1, 2)


def a_machine_is_lost(seed: int) -> None:
    """S1: another machine delivers all complete commits; the lost machine returns with its disk."""
    story = Story(seed)
    before = story.complete
    story.lose("a")
    story.until(lambda: story.delivering in ("b", "c"))
    assert story.complete >= before and "a" not in story.set
    story.more()
    story.find("a")
    story.until(lambda: story.set == "abc")
    story.more()


def a_store_is_closed(seed: int) -> None:
    """S2: the same machine leads again in a new epoch, before a follower takes over."""
    story = Story(seed)
    epoch = story.world.value.epoch
    story.world.close_store("a")
    story.until(lambda: story.delivering == "a")
    assert story.world.value.epoch == epoch + 1
    story.more()


def a_leader_restarts(seed: int) -> None:
    """S3: the same machine leads again before a follower takes over; each life of a process has an epoch."""
    story = Story(seed)
    epoch, before = story.world.value.epoch, story.complete
    story.world.restart("a")
    story.until(lambda: story.delivering == "a")
    assert story.world.value.epoch == epoch + 1 and story.complete >= before
    story.more()


def leadership_is_handed_over(seed: int) -> None:
    """S4: the target delivers without waiting for silence, and the old leader stops delivering."""
    story = Story(seed)
    story.still = True
    replica = story.node("a").replica
    assert replica is not None
    story.until(lambda: replica.copy.complete == replica.copy.end)
    epoch = story.world.value.epoch
    story.world.act(story.node("a"), replica.hand_over("b.0"))
    assert story.delivering == ""
    story.until(lambda: story.delivering == "b")
    assert story.world.value.epoch == epoch + 1 and "a" in story.set
    story.still = False
    story.more()


def all_machines_lose_power(seed: int) -> None:
    """S7: the last leader leads again, in a new epoch, with all complete commits."""
    story = Story(seed)
    before = story.complete
    for name in "abc":
        story.world.lose_power(name)
    story.until(lambda: story.delivering == "a")
    assert story.complete >= before and story.set == "abc"
    story.more()


def etcd_is_away(seed: int) -> None:
    """S8: nothing changes until a member is lost; then no commit completes until etcd returns. The leader stays."""
    story = Story(seed)
    story.world.shut = frozenset("abc")
    story.seconds(3 * TIMES.failover)
    story.more()
    assert story.delivering == "a"
    story.lose("c")
    story.seconds(TIMES.failover)
    before = story.complete
    story.seconds(2 * TIMES.failover)
    assert story.complete == before and story.world.value.epoch == 2
    story.world.shut = frozenset()
    story.until(lambda: story.set == "ab")
    story.more()


def etcd_is_set_back(seed: int) -> None:
    """S9: a replica that reads an older value than a known one stops, and reports the reason."""
    story = Story(seed)
    older = story.world.value
    story.lose("c")
    story.until(lambda: story.set == "ab" and story.node("a").replica.known == story.world.value)  # type: ignore[union-attr]
    replica = story.node("a").replica
    assert replica is not None and replica.known is not None
    replica.on_read(older, Read(replica.known.v, replica.copy.promised))
    assert "etcd was set back" in replica.stopped and replica.leader is None
    assert replica.on_value(older) == replica.take_over() == replica.retry() == []


def a_follower_is_cut_off(seed: int) -> None:
    """S10: the set goes on without a follower that is cut off; the follower returns after keeping up for a time."""
    story = Story(seed)
    story.part("ac", "ca", "bc", "cb")
    story.until(lambda: story.set == "ab")
    story.more()
    story.world.blocked = frozenset()
    story.until(lambda: story.set == "abc")


def the_leader_is_cut_from_all(seed: int) -> None:
    """S13: the isolated leader stops delivering, another replica leads; the isolated tail is cut on return."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.part("ab", "ba", "ac", "ca")
    story.until(lambda: story.delivering == "")
    story.until(lambda: story.delivering in ("b", "c"))
    story.world.blocked, story.world.shut = frozenset(), frozenset()
    story.until(lambda: story.set == "abc")
    story.more()


def the_leader_is_cut_from_etcd(seed: int) -> None:
    """S12: a leader without etcd goes on."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.seconds(3 * TIMES.failover)
    story.more()
    assert story.delivering == "a" and story.world.value.epoch == 2


def a_connection_flaps(seed: int) -> None:
    """S14: a repeatedly removed replica stays out of the set for longer each time, until it keeps up."""
    story = Story(seed)
    holds = []
    for _ in range(3):
        story.until(lambda: "b" in story.set)
        story.seconds(2 * TIMES.steady)
        story.part("ab", "ba")
        story.until(lambda: "b" not in story.set)
        story.world.blocked = frozenset()
        holds.append(story.node("a").pace.pace.arrears["b.0"].hold)
    assert sorted(holds) == holds
    story.until(lambda: story.set == "abc")
    pace = story.node("a").pace.pace
    pace.times = replace(pace.times, forgotten=1.0)
    story.until(lambda: pace.arrears["b.0"].hold == TIMES.steady)


def two_of_three_are_lost(seed: int) -> None:
    """S15: while an electable replica is silent, nothing completes or is delivered; both resume by themselves."""
    story = Story(seed)
    story.lose("b")
    story.lose("c")
    story.until(lambda: story.set == "a")
    story.seconds(TIMES.lease)
    before = story.complete
    story.seconds(2 * TIMES.failover)
    assert story.complete == before and story.delivering == "" and story.world.value.eligible
    story.find("b")
    story.find("c")
    story.until(lambda: story.set == "abc" and story.delivering)
    story.more()


def a_disk_fails_and_another_hangs(seed: int) -> None:
    """S17: the process ends at once, or after a time, and another machine leads with all complete commits."""
    story = Story(seed)
    before = story.complete
    story.node("a").disk.fails = 1
    story.until(lambda: story.node("a").replica is None)
    story.until(lambda: story.delivering)
    assert story.complete >= before
    leader = story.delivering
    story.world.slow[leader] = story.world.now + 3 * TIMES.hung
    story.down.add(leader)
    story.until(lambda: story.node(leader).replica is None)
    story.until(lambda: story.delivering not in ("", leader))
    story.more()


TOLD: list[Callable[[int], None]] = [
    a_machine_is_lost,
    a_store_is_closed,
    a_leader_restarts,
    leadership_is_handed_over,
    stories.a_deposed_leader_connects_again,  # S5
    stories.a_member_was_away_for_long,  # S6
    all_machines_lose_power,
    etcd_is_away,
    etcd_is_set_back,
    a_follower_is_cut_off,
    stories.all_but_the_leader_are_eligible,  # S11
    the_leader_is_cut_from_etcd,
    the_leader_is_cut_from_all,
    a_connection_flaps,
    two_of_three_are_lost,
    stories.the_last_of_the_set_is_away,  # S16
    a_disk_fails_and_another_hangs,
]
"""S1 to S17."""


@pytest.mark.parametrize("story", TOLD, ids=lambda story: story.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_story_ends_as_operators_are_told(story: Callable[[int], None], seed: int) -> None:
    story(seed)


def test_a_set_that_is_short_takes_a_follower_at_once() -> None:
    """S11: nothing is complete without a follower, and a follower joins without a period of proof."""
    story = Story(1)
    for name in "bc":
        story.node(name).pace.pace.times = replace(TIMES, steady=1e9, most_steady=1e9)
    story.part("ab", "ba", "ac", "ca")
    story.until(lambda: story.world.value.short)
    story.until(lambda: story.set == "bc")
