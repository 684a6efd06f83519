"""Stories: scripted failures of three replicas with clocks. Each invariant is checked after each step.

The stories follow the headings of the operators' table: loss of a machine, a process, a store, a disk; each
kind of network partition; etcd unreachable, or restored from an older state. Between two events of a story
the seed selects the order of the possible steps.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.replication.walks import TIMES, Walk
from tests.replication.world import Node, require

from jumpmq.replication.actions import Swap


class Story(Walk):
    """A walk without failures other than the story's own.

    Attributes:
        since: when the last wait began.
    """

    def __init__(self, seed: int = 1, nodes: int = 3) -> None:
        super().__init__(seed, timed=True, temper={"nodes": nodes, "failures": [], "late": 0, "rash": 0})
        self.down: set[str] = set()
        self.still = False
        self.world.shut = frozenset(self.names[1:])  # the first replica leads, however slow its start is
        self.until(lambda: self.delivering == "a" and self.complete and len(self.set) == nodes)
        self.world.shut = frozenset()
        self.until(lambda: all(node.replica.known == self.world.value for node in self.world.nodes.values()))

    def _start(self, name: str) -> None:
        if name not in self.down and self.world.nodes[name].replica is None:
            self.world.start(name)

    def _write(self, name: str) -> None:
        if not self.still and self.random.random() < 0.25:
            super()._write(name)

    def _trim(self, name: str) -> None:
        """Trim only at the story's request; segments of a manifest are pinned while a member reads them."""

    def leads(self, name: str) -> bool:
        """Return True if a node runs and leads."""
        replica = self.node(name).replica
        return replica is not None and replica.leader is not None

    def node(self, name: str) -> Node:
        node: Node = self.world.nodes[name]
        return node

    @property
    def delivering(self) -> str:
        """Return the names of the delivering machines."""
        nodes = self.world.nodes.values()
        alive = [node for node in nodes if node.replica is not None and not self._asleep(node.name)]
        return "".join(node.name for node in alive if node.pace.pace.may_deliver(node.pace.now))

    @property
    def complete(self) -> int:
        """Return the number of complete commits; a first segment without complete commits does not count."""
        return sum(stretch.end for stretch in self.world.done)

    @property
    def set(self) -> str:
        """Return the machines in etcd's set, sorted by name."""
        return "".join(sorted(one[0] for one in self.world.value.set))

    def until(self, holds: Callable[[], object], most: int = 6000) -> None:
        """Go on until something holds."""
        for _ in range(most):
            if holds():
                return
            self.step()
        raise AssertionError(f"it never came to that: {self.world.value}, {self.delivering} delivers")

    def seconds(self, seconds: float) -> None:
        """Advance the time."""
        end = self.world.now + seconds
        self.until(lambda: self.world.now >= end, 100_000)

    def more(self, count: int = 3) -> None:
        """More commits become complete."""
        before = self.complete
        self.until(lambda: self.complete >= before + count)

    def lose(self, name: str, *, power: bool = True) -> None:
        """Kill a machine until :meth:`find`, with or without a loss of power."""
        self.down.add(name)
        (self.world.lose_power if power else self.world.kill)(name)

    def find(self, name: str) -> None:
        """End the loss of a machine: the machine may start again."""
        self.down.discard(name)

    def part(self, *pairs: str) -> None:
        """Cut the network in the given directions."""
        self.world.blocked |= {(pair[0], pair[1]) for pair in pairs}

    def mend_pairs(self, *pairs: str) -> None:
        """Mend the network in the given directions; delayed frames arrive."""
        self.world.blocked -= {(pair[0], pair[1]) for pair in pairs}


# --- stories that tell rules from mutants ---


def answers_that_come_late(seed: int) -> None:
    """Beats are answered at once; the answers arrive after another replica leads and delivers (R8)."""
    story = Story(seed)
    story.part("ba", "ca")
    story.seconds(TIMES.beat * 2)
    story.world.shut |= {"a"}
    story.part("ab", "ac")
    story.until(lambda: story.delivering in ("b", "c"))
    story.mend_pairs("ba", "ca")
    story.seconds(TIMES.lease)


def one_follower_sees_the_old_leader(seed: int) -> None:
    """A leader with a connection to one of two followers is deposed by the other follower (R8)."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.part("ab", "ba")
    story.until(lambda: story.delivering in ("b", "c"))
    story.seconds(TIMES.lease)


def all_but_the_leader_are_eligible(seed: int) -> None:
    """A leader that has removed all followers delivers nothing: any removed replica may take over (R8)."""
    story = Story(seed)
    story.part("ab", "ba", "ac", "ca")
    story.until(lambda: story.set == "a" and story.node("a").replica.known == story.world.value)  # type: ignore[union-attr]
    story.world.shut |= {"a"}
    story.until(lambda: story.delivering == "", most=500)
    story.until(lambda: "b" in story.delivering or "c" in story.delivering)


def a_claim_lands_late(seed: int) -> None:
    """A claim takes effect after its replica has forgotten the claim, follows again, and answers beats (R8)."""
    story = Story(seed, nodes=2)
    story.late = 1.0
    story.calm = False
    story.part("ab")
    story.until(lambda: any(one.node == "b" and isinstance(one.what, Swap) for one in story.world.requests))
    claim = next(one for one in story.world.requests if one.node == "b" and isinstance(one.what, Swap))
    story.world.requests = ()
    story.mend_pairs("ab")
    story.world.kill("b")
    story.world.start("b")
    story.until(lambda: story.delivering == "a")
    story.world.blocked = frozenset({("b", "a"), ("a", "b")})
    story.world.shut |= {"a"}
    story.world.requests = (claim,)
    story.world.land(0)
    story.world.learn("b")
    story.until(lambda: story.delivering == "b")


def a_tail_of_another_epoch(seed: int) -> None:
    """A deposed leader has a longer log than its successor, and is asked for the log in the epoch after (R5)."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.part("ab", "ba", "ac", "ca")
    for _ in range(4):
        story.until(lambda: not story.node("a").ops or story.node("a").replica is None)
        story.world.roll("a")
        story.until(lambda: not story.node("a").ops or story.node("a").replica is None)
        story.world.write("a")
    story.until(lambda: story.delivering in ("b", "c"))
    name = story.delivering
    story.lose(name, power=False)
    story.world.blocked = frozenset()
    story.world.shut = frozenset()
    story.until(lambda: not story.leads("a"))
    story.find(name)
    story.until(lambda: story.delivering)
    story.more()


def a_leader_that_lost_octets(seed: int) -> None:
    """A disk that lost octets behind its mark leads alone; the followers know a higher complete position (R7)."""
    story = Story(seed)
    for name in "bc":
        story.until(lambda name=name: story.node(name).disk.noted[1] & 255 > 4)  # type: ignore[misc]
    for name in "abc":
        story.lose(name, power=False)
    disk = story.node("a").disk
    disk.noted = (disk.noted[0], 0)
    disk.cut((disk.files[-1].segment << 32) + 1)
    disk.excused = True
    story.find("a")
    story.until(lambda: story.leads("a"))
    story.find("b")
    story.find("c")
    story.until(lambda: story.world.trouble)
    require(len(story.node("b").disk.files[-1].octets) > 1, "I7", "b has cut what it knows to be complete")


def a_joiner_is_dropped_while_its_swap_may_land(seed: int) -> None:
    """The answer to a join is lost, and the joiner goes away (R2, R3)."""
    story = Story(seed)
    story.lose("c")
    leader = story.node("a").replica
    assert leader is not None and leader.leader is not None
    story.until(lambda: story.set == "ab" and leader.known == story.world.value)
    story.find("c")
    story.late = 1.0
    story.calm = False
    story.until(lambda: leader.leader.open)  # type: ignore[union-attr]
    (at,) = (at for at, one in enumerate(story.world.requests) if one.node == "a" and isinstance(one.what, Swap))
    story.world.land(at, lose_answer=True)
    assert story.set == "abc"  # and a does not know
    story.lose("c")
    story.world.shut |= {"a"}
    story.world.requests = ()
    story.seconds(2 * TIMES.silent)
    story.world.shut = frozenset()
    story.late = 0.0
    story.until(lambda: story.set == "ab")
    story.more()


def a_deposed_leader_connects_again(seed: int) -> None:
    """A leader unaware of the deposition asks replicas to follow (R6), and truncates its own tail (R7)."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.part("ab", "ba", "ac", "ca")
    for _ in range(5):
        story.world.write("a")
    story.until(lambda: story.delivering in ("b", "c"))
    story.more()
    for peer in "bc":
        story.world._break("a", peer)
    story.world.blocked = frozenset()
    story.until(lambda: not story.leads("a"))
    story.world.shut = frozenset()
    story.until(lambda: story.set == "abc")
    story.more()


def the_last_of_the_set_is_away(seed: int) -> None:
    """A stale replica does not lead, however long the members of the set are down (R4)."""
    story = Story(seed)
    story.lose("c")
    story.until(lambda: story.set == "ab")
    story.more()
    story.lose("a")
    story.lose("b")
    story.find("c")
    story.seconds(4 * TIMES.failover)
    require(story.delivering == "" and story.node("c").replica is not None, "R4", "a stale replica leads")
    story.find("a")
    story.find("b")
    story.until(lambda: story.set == "abc" and story.delivering)
    story.more()


def a_promise_outlives_the_candidate(seed: int) -> None:
    """A follower has promised an epoch, and hears from the old leader only (R6)."""
    story = Story(seed)
    story.world.shut |= {"a"}
    story.part("ab", "ba", "ac", "ca")
    old = story.world.value.epoch
    story.until(lambda: any(story.world.answered.get(f"{name}.0", 0) > old for name in "bc"))
    name = next(name for name in "bc" if story.world.answered.get(f"{name}.0", 0) > old)
    story.part("bc", "cb")
    story.world._break("a", name)
    story.mend_pairs(f"a{name}", f"{name}a")
    story.seconds(2 * TIMES.failover)
    story.world.blocked, story.world.shut = frozenset(), frozenset()
    story.until(lambda: story.set == "abc" and story.delivering)
    story.more()


def a_member_was_away_for_long(seed: int) -> None:
    """The leader's log begins behind the end of a returning member's log; the member receives files first."""
    story = Story(seed)
    story.lose("c")
    story.until(lambda: story.set == "ab")
    for _ in range(3):
        story.more()
        story.until(lambda: not story.node("a").ops)
        story.world.roll("a")
    story.until(lambda: story.world.trim("a", 2) or story.node("a").disk.begins >= 3)
    story.find("c")
    story.until(lambda: story.set == "abc")
    assert story.node("c").disk.begins > 1
    story.more()
