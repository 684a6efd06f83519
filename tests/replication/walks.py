"""Random walks through a simulated world, by seed: with time, or without time and with steps in any order.

A walk without time claims, removes and joins at random, and so covers all timings. A walk with time has the
clocks of :class:`~jumpmq.replication.pace.Pace`, with drift and suspensions, and checks that two replicas
never deliver at once (I9). At the end of each walk all failures are mended: then the home serves, and all
copies are equal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from tests.replication.world import REAL, Node, Parts, World, Wrong, require

from jumpmq.replication.actions import Swap
from jumpmq.replication.configuration import ConfigurationError, node_of
from jumpmq.replication.frames import Beat, Beaten, Piece
from jumpmq.replication.pace import Pace, Times

TIMES = Times(
    beat=0.1, lease=0.8, failover=1.2, rank=0.1, reset=0.2, silent=0.6, unstored=1.0, steady=0.5, most_steady=2.0,
    gather=0.3, gather_all=1.0, retry=0.4, hung=3.0, note=0.3,
)  # fmt: skip
"""The real delays, divided by three: more happens in a walk."""

HUNG = TIMES.hung

TIMES_WITHOUT_END = replace(TIMES, hung=1e9)

DRIFT = 0.15
"""Largest relative drift of a clock; leases allow for a factor of 1.5 between two clocks."""


class Clock:
    """The clock of a machine, and the timed work of a replica's process."""

    def __init__(self, world: TimedWorld, node: Node) -> None:
        self.world, self.node = world, node
        assert node.replica is not None
        self.pace = world.pace(node.replica, self.now, TIMES)

    @property
    def now(self) -> float:
        offset, rate = self.world.clocks[self.node.name]
        return offset + rate * self.world.now

    def on_connected(self, peer: str) -> None:
        self.pace.on_connected(peer, self.now)

    def on_disconnected(self, peer: str) -> None:
        self.pace.on_disconnected(peer, self.now)

    def on_value(self, before: Any, value: Any) -> None:
        self.pace.on_value(before, value, self.now)

    def on_frame(self, peer: str, frame: Beat | Beaten) -> None:
        if isinstance(frame, Beaten):
            self.pace.on_beaten(peer, frame, self.now)
        else:
            self.world.act(self.node, self.pace.on_beat(peer, frame, self.now))


def _monotonic(clock: Clock) -> float:
    """Return the reading of a clock that does not count suspended time."""
    world, name = clock.world, clock.node.name
    offset, rate = world.clocks[name]
    return offset + rate * (world.now - world.slept.get(name, 0.0))


MONOTONIC = property(_monotonic)


class TimedWorld(World):
    """A world with clocks.

    Attributes:
        clocks: offset and rate of each machine's clock.
        asleep: suspended machines, with the time of their resumption.
        slow: machines with a hanging disk, with the time of its end.
        slept: total suspended time of each machine.
    """

    def __init__(self, names: str, random: Random, parts: Parts = REAL) -> None:
        self.clocks = {name: (random.uniform(0, 1000), 1 + random.uniform(-DRIFT, DRIFT)) for name in names}
        self.asleep: dict[str, float] = {}
        self.slow: dict[str, float] = {}
        self.slept: dict[str, float] = {}
        self.pace = Pace
        self.due = dict.fromkeys(names, 0.0)
        super().__init__(names, parts._replace(pace=Clock))

    def tick(self) -> None:
        """Run the due clocks of all machines."""
        for name, node in self.nodes.items():
            if node.replica is None or self.asleep.get(name, 0) > self.now or self.due[name] > self.now:
                continue
            self.due[name] = self.now + TIMES.beat / 2
            clock = node.pace
            clock.pace.on_sync(None if not node.ops else clock.pace.syncing or clock.now)
            self.act(node, clock.pace.tick(clock.now))

    def complete(self, name: str, most: int = 1) -> bool:
        node = self.nodes[name]
        if node.pace is not None:
            node.pace.pace.on_sync(None)
        return super().complete(name, most)

    def check(self) -> None:
        super().check()
        for node in self.nodes.values():
            if node.replica is not None and self.asleep.get(node.name, 0) <= self.now and node.pace.pace.syncing:
                hangs = node.pace.now - node.pace.pace.syncing
                require(hangs < 1.2 * HUNG + 1, "I17", f"the disk of {node.name} hangs, and its process lives")
        delivering = [
            name
            for name, node in self.nodes.items()
            if node.replica is not None
            and self.asleep.get(name, 0) <= self.now
            and node.pace.pace.may_deliver(node.pace.now)
        ]
        require(len(delivering) < 2, "I9", f"{delivering} deliver at once")


Temper = Mapping[str, Any]
"""Preset attributes of walks, otherwise drawn at random; `nodes` is the number of nodes."""


class Walk:
    """One walk.

    Attributes:
        world: the world under test.
        random: generator with the walk's seed.
        steps: number of steps taken.
        calm: no more failures.
        rash: share of unneeded actions.
        late: share of late answers of etcd.
        rolls: share of possible segment changes that the leader's store makes.
    """

    def __init__(self, seed: int, parts: Parts = REAL, *, timed: bool = False, temper: Temper | None = None) -> None:
        self.random = Random(seed)
        names = "abcde"[: (temper or {}).get("nodes") or self.random.choice([2, 2, 3, 3, 3, 3, 3, 4, 5])]
        self.timed = timed
        self.world: Any = TimedWorld(names, self.random, parts) if timed else World(names, parts)
        self.names = list(names)
        self.steps = 0
        self.calm = False
        # Each walk has its own temper, or failures of all kinds would keep each other from doing harm.
        usual = [kind for kind, weight in USUAL for _ in range(weight)]
        if not timed:
            usual += [kind for kind, weight in WHENEVER for _ in range(weight)]
        self.usual = usual
        self.failures = sorted({*self.random.choice(FAILURES), *self.random.choice(FAILURES)})
        self.rate = self.random.choice([0.002, 0.01, 0.03] if timed else [0.003, 0.01, 0.03])
        self.rash = self.random.choice([0.02, 0.1, 0.3])
        self.late = self.random.choice([0, 0, 0.9, 0.97])
        self.rolls = 0.2
        for name, value in (temper or {}).items():
            setattr(self, name, value)

    def run(self, steps: int) -> None:
        """Take so many steps, and check each invariant after each step."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        random, world = self.random, self.world
        if not self.calm and self.failures and random.random() < self.rate:
            kind = random.choice(self.failures)
        else:
            kind = random.choice(self.usual)
        self.steps += 1
        if self.timed:
            world.now += random.random() * 0.03 / len(self.names)
        getattr(self, f"_{kind}")(random.choice(self.names))
        if self.timed:
            world.tick()
        world.check()

    def mend(self, most: int = 6000) -> None:
        """Mend all failures: with an electable replica, the home serves, and all copies are equal and in the set."""
        world = self.world
        self.calm = True
        world.blocked = frozenset()
        self.late, world.shut = 0, frozenset()
        for node in world.nodes.values():
            node.disk.fails, node.disk.lies = 0, False
        if self.timed:
            world.asleep, world.slow = {}, {}
        for at in range(most):
            self.step()
            if world.lost:
                return
            if at % 50 == 49 and self._whole():
                return
        electable = [one for one in world.value.electable if world.nodes[node_of(one)].disk.name == one]
        if electable and not world.lost and len(world.value.members) >= world.value.min:
            raise Wrong(f"liveness: {world.value} does not serve with all copies")

    def _whole(self) -> bool:
        world = self.world
        ids = {world.nodes[name].disk.name for name in world.value.members}
        leader = world.nodes[node_of(world.value.leader)]
        if {*world.value.set} != ids or not leader.writing or leader.is_ahead:
            return False
        if leader.replica.copy.complete < leader.replica.copy.end:
            return False
        for name in world.value.members:
            ours, theirs = leader.disk.files, world.nodes[name].disk.files
            first = max(ours[0].segment, theirs[0].segment)
            same = [[one[:4] for one in files if one.segment >= first] for files in (ours, theirs)]
            require(same[0] == same[1], "I3", f"copies of {leader.name} and {name} differ when all is complete")
        return True

    # --- what usually happens ---

    def _deliver(self, name: str) -> None:
        pairs = [pair for pair, frames in self.world.links.items() if frames and not self._asleep(pair[1])]
        if pairs:
            self.world.deliver(self.random.choice(pairs))

    def _complete(self, name: str) -> None:
        if not self._asleep(name) and (not self.timed or self.world.slow.get(name, 0) <= self.world.now):
            self.world.complete(name)

    def _write(self, name: str) -> None:
        if self.calm and self.world.commits % 8:
            return self._complete(name)  # with writes all the time nothing would ever be complete up to its end
        leader = node_of(self.world.value.leader) if self.random.random() < 0.8 else name
        if not self._asleep(leader):
            self.world.write(leader, ahead=self.world.commits % 3 == 1)
        return None

    def _roll(self, name: str) -> None:
        if self.random.random() < self.rolls:
            self.world.roll(name)

    def _trim(self, name: str) -> None:
        if self.random.random() < 0.2:
            self.world.trim(name, self.random.choice([1, 1, 2, 1 << 30]))

    def _land(self, name: str) -> None:
        """Apply a request in etcd, even long after the loss of the connection."""
        at = self.random.randrange(len(self.world.requests)) if self.world.requests else -1
        if at >= 0 and self.world.requests[at].node not in self.world.shut and self.random.random() >= self.late:
            self.world.land(at)

    def _answer(self, name: str) -> None:
        at = self.random.randrange(len(self.world.answers)) if self.world.answers else -1
        if at >= 0 and self.world.answers[at].node not in self.world.shut:
            self.world.answer(at)

    def _learn(self, name: str) -> None:
        if not self._asleep(name) and name not in self.world.shut:
            self.world.learn(name)

    def _notice(self, name: str) -> None:
        if self.world.notices:
            self.world.notice(*self.random.choice(self.world.notices))

    def _connect(self, name: str) -> None:
        other = self.random.choice(self.names)
        if not self._asleep(name) and not self._asleep(other):
            self.world.connect(name, other)

    def _start(self, name: str) -> None:
        node = self.world.nodes[name]
        if node.replica is None and (self.calm or self.random.random() < 0.1):
            self.world.start(name)

    def _time(self, name: str) -> None:
        """Advance the time; only the clocks act."""

    # --- steps possible at any moment, without time ---

    def _take_over(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is None or replica.known is None:
            return
        leader = self.world.nodes[node_of(replica.known.leader)]
        gone = leader.replica is None or leader.disk.name != replica.known.leader
        if self._patient(name == leader.name or (gone and self.calm)):
            self.world.act(self.world.nodes[name], replica.take_over())

    def _patient(self, due: bool) -> bool:
        """Return True if an action is due, or taken now without need."""
        return due or (not self.calm and self.random.random() < self.rash)

    def _gathered(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is not None and (self.calm or self.random.random() < 0.2):
            self.world.act(self.world.nodes[name], replica.gathered())

    def _retry(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is not None:
            self.world.act(self.world.nodes[name], replica.retry())

    def _remove(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is None or replica.leader is None:
            return
        waits = sorted(replica.leader.waits())
        absent = [one for one in waits if one not in replica.leader.following]
        if absent or (waits and not self.calm):
            some = self.random.sample(absent or waits, self.random.randint(1, len(absent or waits)))
            if self._patient(bool(absent)):
                self.world.act(self.world.nodes[name], replica.remove(some))

    def _join(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is not None and replica.leader is not None and replica.leader.following:
            peer = self.random.choice(sorted(replica.leader.following))
            self.world.act(self.world.nodes[name], replica.join(peer))

    def _note(self, name: str) -> None:
        replica = self.world.nodes[name].replica
        if replica is not None:
            self.world.act(self.world.nodes[name], replica.note())

    # --- what fails ---

    def _lose_power(self, name: str) -> None:
        self.world.lose_power(name, self.random.choice([0, 0, 1, 2]))

    def _lose_power_everywhere(self, name: str) -> None:
        for one in self.random.sample(self.names, self.random.randint(2, len(self.names))):
            self._lose_power(one)

    def _kill(self, name: str) -> None:
        self.world.kill(name)

    def _close_store(self, name: str) -> None:
        self.world.close_store(node_of(self.world.value.leader))

    def _restart(self, name: str) -> None:
        self.world.restart(node_of(self.world.value.leader))

    def _cut(self, name: str) -> None:
        self.world._break(name, self.random.choice(self.names))

    def _block(self, name: str) -> None:
        """Cut one direction, both, or all of a machine: frames wait for the mending, and neither end notices."""
        other = self.random.choice([one for one in self.names if one != name])
        pairs = {(name, other)}
        if self.random.random() < 0.5:
            pairs.add((other, name))
        if self.random.random() < 0.3:
            pairs |= {(name, one) for one in self.names} | {(one, name) for one in self.names}
        self.world.blocked |= pairs

    def _mend_network(self, name: str) -> None:
        self.world.blocked = frozenset()

    def _lose_answer(self, name: str) -> None:
        if self.world.requests:
            self.world.land(self.random.randrange(len(self.world.requests)), lose_answer=True)

    def _lose_request(self, name: str) -> None:
        self.world.requests = self.world.requests[1:]

    def _forget_answers(self, name: str) -> None:
        self.world.answers = ()

    def _swap_twice(self, name: str) -> None:
        """Send a swap twice, as the client of etcd does by itself."""
        swaps = [one for one in self.world.requests if isinstance(one.what, Swap)]
        if swaps:
            self.world.requests = (*self.world.requests, self.random.choice(swaps))

    def _shut_etcd(self, name: str) -> None:
        self.world.shut |= {name}

    def _mend_etcd(self, name: str) -> None:
        self.world.shut = frozenset()

    def _sync_fails(self, name: str) -> None:
        self.world.nodes[name].disk.fails = 1

    def _lies(self, name: str) -> None:
        disk = self.world.nodes[name].disk
        disk.lies = not disk.lies

    def _flips(self, name: str) -> None:
        """Flip a bit on the medium; the next start finds the damage by a CRC and loses the octets behind it."""
        node = self.world.nodes[name]
        if node.replica is None and node.disk.files:
            position = self.random.choice(node.disk.files)
            if position.octets:
                node.disk.cut((position.segment << 32) + self.random.randrange(len(position.octets)))
                node.disk.excused = True

    def _damage_piece(self, name: str) -> None:
        """Damage octets of a file in transit; the receiver finds the damage by their CRC."""
        for pair, frames in self.world.links.items():
            for at, frame in enumerate(frames):
                if isinstance(frame, Piece) and frame.octets:
                    damaged = frame._replace(octets=bytes([frame.octets[0] ^ 1]) + frame.octets[1:])
                    self.world.links = {**self.world.links, pair: (*frames[:at], damaged, *frames[at + 1 :])}
                    return

    def _suspend(self, name: str) -> None:
        if self.timed:
            until = self.world.now + self.random.uniform(0, 3 * TIMES.failover)
            if not self._asleep(name):
                self.world.asleep[name] = until
                self.world.slept[name] = self.world.slept.get(name, 0.0) + until - self.world.now

    def _hang(self, name: str) -> None:
        if self.timed:
            self.world.slow[name] = self.world.now + self.random.uniform(0, 2 * TIMES.hung)

    # --- what operators do ---

    def _hand_over(self, name: str) -> None:
        node = self.world.nodes[node_of(self.world.value.leader)]
        if node.replica is not None and not self._asleep(node.name):
            self.world.act(node, node.replica.hand_over(self.random.choice(self.world.value.set)))

    def _resign(self, name: str) -> None:
        leader = node_of(self.world.value.leader)
        if not self._asleep(leader):
            self.world.resign(leader)

    def _operate(self, name: str) -> None:
        """Change the number of copies, or of members."""
        node = self.world.nodes[node_of(self.world.value.leader)]
        if node.replica is None or node.replica.leader is None:
            return
        known = node.replica.leader.known
        try:
            match self.random.randrange(3):
                case 0:
                    copies = self.random.randint(1, len(self.names))
                    value = known.resized(copies, self.random.randint(1, copies))
                case 1:
                    value = known.with_member(name)
                case _:
                    value = known.without_member(name)
        except ConfigurationError:
            return
        self.world.act(node, node.replica.leader.change(value))

    def _asleep(self, name: str) -> bool:
        return self.timed and self.world.asleep.get(name, 0) > self.world.now


USUAL = [("deliver", 24), ("complete", 10), ("write", 6), ("roll", 1), ("trim", 1), ("land", 2), ("answer", 2)]
USUAL += [("learn", 2), ("notice", 2), ("connect", 3), ("start", 2)]

WHENEVER = [("take_over", 1), ("gathered", 1), ("retry", 1), ("remove", 1), ("join", 2), ("note", 1)]

FAILURES = [
    ["block", "mend_network", "cut", "shut_etcd", "mend_etcd", "suspend", "kill"],
    ["lose_answer", "lose_request", "forget_answers", "swap_twice", "shut_etcd", "mend_etcd", "cut"],
    ["kill", "close_store", "restart", "cut", "lose_answer", "suspend"],
    ["lose_power", "lose_power_everywhere", "kill", "sync_fails", "hang", "restart"],
    ["lies", "flips", "lose_power", "kill", "damage_piece"],
    ["hand_over", "resign", "operate", "cut", "close_store"],
]
"""Effective combinations of kinds of failures."""


class Found(NamedTuple):
    """Progress of walks, and the first failure: the seed, the step, and the violated invariant."""

    walks: int
    steps: int
    commits: int
    epochs: int
    wrong: list[tuple[int, int, str]]


def walk(
    seed: int, count: int | None, *, steps: int = 1000, timed: bool = False, parts: Parts = REAL, first: bool = True,
    seconds: float = float("inf"), mended: bool = True, temper: Temper | None = None,
) -> Found:  # fmt: skip
    """Run so many walks, or as many as the time allows; stop at the first failure."""
    until, walks, done, commits, epochs = time.monotonic() + seconds, 0, 0, 0, 0
    wrong: list[tuple[int, int, str]] = []
    while walks != count and time.monotonic() < until and not (wrong and first):
        one = Walk(seed + walks, parts, timed=timed, temper=temper)
        try:
            one.run(steps)
            if mended:
                one.mend()
        except (AssertionError, ConfigurationError, LookupError, TypeError, ValueError) as error:
            wrong.append((seed + walks, one.steps, repr(error)))
        walks, done, commits = walks + 1, done + one.steps, commits + one.world.commits
        epochs += one.world.value.epoch
    return Found(walks, done, commits, epochs, wrong)
