"""The log of a cluster under simulated etcd, links, disks and crashes, with hypothesis as the scheduler.

Choices of the scheduler:

- log: request a change at a home; send a home's next entry to etcd; apply a sent entry there (late, twice, never); read
  some entries at a home; compact the log;
- links: deliver a record, break a link at both ends or at one, mend a link;
- liveness: record a home's applied entries in etcd, read the records of peers, suspend a home without etcd, expire the
  key of a home, dead or alive;
- processes: commit a disk, kill a process with or without notice on the links, restart a process from the disk.

For any schedule: all homes and the snapshot have equal states after the same entries, no change takes effect twice,
answered changes are known to all serving processes, with or without links, and after mending every change is answered.
"""

import json
from collections import deque
from functools import cache
from typing import Any

from hypothesis import strategies as st
from tests.nodes.log.disks import Disk
from tests.nodes.log.schedules import Choice, Schedule, steps_of
from tests.topology.state import state_of

from jumpmq.amqp.errors import AMQPError
from jumpmq.nodes.log.cluster_log import PLACE_BITS, STALLED, ClusterLog
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    ExchangeDefinition,
    Pending,
    SetPolicy,
    Topology,
)
from jumpmq.topology.snapshot import digest_of, records_of

HOMES = 3

ALL = range(1, HOMES + 1)

NODES = {1: "one@host", 2: "two@host", 3: "three@host"}

NEVER = 1 << 60
"""A number higher than every entry."""


@cache
def first_records() -> list[tuple[str, str, Any]]:
    """Return the cluster's first records; not to be changed."""
    topology = Topology("", home=0, shared=True)
    topology.apply(AddVirtualHost("/"))
    topology.applied = 0
    return records_of(topology)


Said = int | tuple[int, str]
"""Content of a link: the number of the last applied entry, or an entry with its number."""


class Process:
    """A running home."""

    def __init__(self, world: "World", home: int) -> None:
        self.world, self.home = world, home
        self.disk = world.disks[home]
        world.boots += 1
        self.topology = Topology(NODES[home], self.disk, home=home, shared=True)  # type: ignore[arg-type]
        self.topology.restore(self.disk.definitions())
        digest = self.topology.records.maintain(digest_of(self.topology))

        def current() -> int:
            self.topology.records.digest_rings()
            return digest.value

        self.log = ClusterLog(
            *(self.topology, home, f"boot{world.boots}", lambda: self.links, current),
            awaited=lambda: {*self.links, *self.alive} - {home},
        )
        self.topology.order_by(self.log)
        self.log.listen(on_applied=self.applied)
        self.links: dict[int, deque[Said]] = {}  # records in transit to this process, by sending home
        self.early: dict[int, str] = {}  # entries received before their predecessors, by number
        self.alive: set[int] = set()  # homes alive, as known here
        self.begins_with = len(world.entries)  # the process serves after applying these entries
        self.topology.propose(AddHome(home, NODES[home]))

    @property
    def serves(self) -> bool:
        return self.log.applied >= self.begins_with

    def take(self, number: int, entry: str) -> None:
        """Apply an entry, and the entries already received behind it; report local changes over links."""
        if number > self.log.entry:
            self.early[number] = entry
        while (following := self.early.pop(self.log.entry + 1, None)) is not None:
            number, value = self.log.entry + 1, json.loads(following)
            if value["home"] == self.home:
                for home in self.links:
                    self.tell(home, (number, following))
            self.log.receive(number, value)

    def applied(self, entry: int, proposer: int) -> None:
        self.world.compare(self.log, self.topology, f"home {self.home}")
        if proposer != self.home and proposer in self.links:
            self.tell(proposer, self.log.applied)

    def tell(self, home: int, said: Said) -> None:
        """Send a record on a link; without the link at the other end the record is lost."""
        there = self.world.processes.get(home)
        if there is not None and self.home in there.links:
            there.links[self.home].append(said)

    def part(self, home: int) -> None:
        """A link breaks at this end."""
        if home in self.links:
            del self.links[home]
            self.log.everywhere.left(home)


class World:
    """etcd, all processes, and the requested changes."""

    def __init__(self) -> None:
        self.entries: list[str] = []  # as JSON
        self.snapshot = 0, json.dumps(first_records())  # number of the covered entry, and the records
        self.floor = 1  # number of the first kept entry
        self.sent: list[tuple[int, str]] = []  # to etcd, on the way
        self.alive: set[int] = set()  # homes alive in etcd
        self.said: dict[int, int] = {}  # applied entries, as homes recorded them in etcd
        self.disks = {home: Disk() for home in ALL}
        self.processes: dict[int, Process] = {}
        self.boots = self.count = 0
        self.wrong: list[str] = []
        self.asked: list[tuple[Process, Pending]] = []
        self.states: dict[int, dict[str, Any]] = {}  # after each entry
        self.digests: dict[int, int] = {}  # the same

    def compare(self, log: ClusterLog, topology: Topology, who: str) -> None:
        state = state_of(topology)
        if self.states.setdefault(log.applied, state) != state:
            self.wrong.append(f"{who} differs after entry {log.applied}")
        digest = log.digests[log.applied]
        if self.digests.setdefault(log.applied, digest) != digest:
            self.wrong.append(f"{who} has another digest after entry {log.applied}")

    # --- choices of the scheduler ---

    def start(self, home: int) -> None:
        if home not in self.processes:
            disk = self.disks[home]
            if disk.applied >> PLACE_BITS < self.floor - 1:
                disk.replace(json.loads(self.snapshot[1]))
            self.alive.add(home)
            self.processes[home] = Process(self, home)

    def kill(self, home: int) -> None:
        """End a process; its peers notice."""
        self.vanish(home)
        for other in self.processes.values():
            other.part(home)

    def vanish(self, home: int) -> None:
        """End a process or its machine; no link notices."""
        if self.processes.pop(home, None) is not None:
            self.disks[home].lose()

    def compact(self, kept: int) -> None:
        """Compact the log: make a snapshot, and keep a few entries."""
        entry, records = self.snapshot
        topology = Topology("", home=0, shared=True)
        topology.restore(json.loads(records))
        digest = topology.records.maintain(digest_of(topology))

        def current() -> int:
            topology.records.digest_rings()
            return digest.value

        log = ClusterLog(topology, 0, "", lambda: (), current)
        topology.order_by(log)
        log.listen(on_applied=lambda entry, home: self.compare(log, topology, "the snapshot"))
        for number, text in enumerate(self.entries[entry:], entry + 1):
            log.receive(number, json.loads(text))
        self.snapshot = log.entry, json.dumps(records_of(topology))
        self.floor = max(self.floor, log.entry + 1 - kept)

    def expire(self, home: int) -> None:
        """Expire a home's lease in etcd; a living home promises nothing until aware of the expiry."""
        self.alive.discard(home)
        if process := self.processes.get(home):
            process.begins_with = NEVER

    def announce(self, home: int) -> None:
        """Announce a home again after its lease has expired in etcd."""
        if (process := self.processes.get(home)) and home not in self.alive:
            self.alive.add(home)
            process.begins_with = len(self.entries)

    def say(self, home: int) -> None:
        """Record a home's applied entry in etcd."""
        if process := self.processes.get(home):
            self.said[home] = process.log.applied

    def hear(self, home: int) -> None:
        """Read the live homes, and the applied entries, from etcd."""
        if process := self.processes.get(home):
            process.alive = set(self.alive)
            process.log.everywhere.look()
            for peer in ALL:
                process.log.everywhere.applied(peer, self.said.get(peer, 0))

    def commit(self, home: int) -> None:
        if home in self.processes:
            self.processes[home].topology.flush_rings()
            self.disks[home].commit()

    def mend(self, home: int, peer: int) -> None:
        here, there = self.processes.get(home), self.processes.get(peer)
        if home != peer and here and there and not (peer in here.links and home in there.links):
            here.part(peer)
            there.part(home)
            here.links[peer], there.links[home] = deque(), deque()
            here.tell(peer, here.log.applied)
            there.tell(home, there.log.applied)

    def cut(self, home: int, peer: int) -> None:
        """A link breaks."""
        self.drop(home, peer)
        self.drop(peer, home)

    def drop(self, home: int, peer: int) -> None:
        """Break a link; only one end notices."""
        if (here := self.processes.get(home)) is not None:
            here.part(peer)

    def arrive(self, home: int, peer: int) -> None:
        here = self.processes.get(home)
        if here and here.links.get(peer):
            said = here.links[peer].popleft()
            if isinstance(said, int):
                here.log.everywhere.applied(peer, said)
            else:
                here.take(*said)

    def send(self, home: int) -> None:
        """Send a home's next entry to etcd, for the end of the log as known there."""
        process = self.processes.get(home)
        if process and (entry := process.log.to_append()) is not None:
            self.sent.append((process.log.entry + 1, json.dumps(entry)))

    def land(self, which: int) -> None:
        """Apply a sent entry in etcd, if the log ends at the entry's place; possibly long after the sending."""
        if self.sent:
            number, entry = self.sent.pop(which % len(self.sent))
            if number == len(self.entries) + 1:
                self.entries.append(entry)

    def lose(self, which: int) -> None:
        if self.sent:
            self.sent.pop(which % len(self.sent))

    def read(self, home: int, count: int) -> None:
        process = self.processes.get(home)
        if process:
            process.alive = set(self.alive)  # the live homes are read with the entries
            process.log.go_on()
            first = process.log.entry
            if first + 1 < self.floor:  # the process was away for too long, and restarts
                self.kill(home)
                self.start(home)
                return
            for number, entry in enumerate(self.entries[first : first + count], first + 1):
                process.take(number, entry)

    def stall(self, home: int) -> None:
        """Report a long time without etcd to a home; its definitions stand still."""
        if process := self.processes.get(home):
            process.log.stall(STALLED)

    def ask(self, home: int, kind: int) -> None:
        process = self.processes.get(home)
        if process is None:
            return
        self.count += 1
        name = f"n{self.count}"
        change: Change
        match kind:
            case 0:
                change = DeclareQueue(process.topology.define_queue("/", name, durable=True))
            case 1:
                change = DeclareExchange(ExchangeDefinition("/", name, "x-consistent-hash", durable=True))
            case 2:
                shards = {"shards-per-node": self.count % 3 + 1}
                change = SetPolicy("/", "p", f"^n{self.count // 2}$", shards, 0, "exchanges")
            case _:  # often refused: the queue or the exchange may be missing
                change = Bind("/", Binding(f"n{self.count // 2}", "queue", f"n{self.count // 3}", b"2", Arguments()))
        pending = process.topology.propose(change, limited=self.count % 2 == 0)
        self.asked.append((process, pending))
        pending.then(lambda: self.answered(name, kind, pending))

    def answered(self, name: str, kind: int, pending: Pending) -> None:
        try:
            pending.result()
        except AMQPError:
            return
        for home, other in self.processes.items():
            host = other.topology.vhosts["/"]
            if other.serves and kind < 2 and name not in host.declared and name not in host.exchanges:
                self.wrong.append(f"{name} was accepted, and home {home} does not know it")

    def go_on(self, home: int) -> None:
        """Deliver all records in transit, and answer requests of homes, unless a failure prevents the delivery."""
        for other in ALL:
            self.announce(other)
        self.send(home)
        while self.sent:
            self.land(0)
        self.read(home, 1000)
        self.arrive_all()
        for other in ALL:
            self.read(other, 1000)
            self.say(other)
        self.arrive_all()
        self.hear(home)

    def arrive_all(self) -> None:
        for here in list(self.processes.values()):
            for peer in list(here.links):
                while here.links.get(peer):
                    self.arrive(here.home, peer)

    # --- the end ---

    def heal(self) -> None:
        for home in ALL:
            self.start(home)
        for _ in range(100):
            for home in ALL:
                for peer in ALL:
                    self.mend(home, peer)
                self.go_on(home)
                self.commit(home)
            if self._is_quiet():
                break

    def _is_quiet(self) -> bool:
        """Return True if every record has arrived everywhere, and no request is open."""
        processes, last = self.processes.values(), len(self.entries)
        waiting = any(one.log.to_append() is not None or any(one.links.values()) for one in processes)
        return not waiting and all(one.log.entry == last for one in processes)

    def check(self) -> None:
        assert not self.wrong
        ids = [json.loads(entry)["id"] for entry in self.entries]
        assert len(set(ids)) == len(ids), "an entry is in the log twice"
        first, *others = [state_of(one.topology) for one in self.processes.values()]
        assert all(other == first for other in others)
        assert {one.topology.applied for one in self.processes.values()} == {len(ids) << 10}
        for process, pending in self.asked:
            assert pending.decided or process is not self.processes[process.home], "a change was never answered"


CHOICES: list[Choice] = [
    *[("ask", ALL, range(4))] * 2,
    *[("send", ALL)] * 2,
    *[("land", range(4))] * 2,
    ("lose", range(4)),
    *[("read", ALL, range(1, 6))] * 2,
    *[("arrive", ALL, ALL)] * 4,
    ("cut", ALL, ALL),
    ("drop", ALL, ALL),
    ("mend", ALL, ALL),
    ("stall", ALL),
    ("compact", range(4)),
    ("commit", ALL),
    ("kill", ALL),
    ("vanish", ALL),
    ("expire", ALL),
    ("announce", ALL),
    ("start", ALL),
    ("say", ALL),
    ("hear", ALL),
    *[("go_on", ALL)] * 2,
]

STEP = steps_of(CHOICES)

STEPS = st.lists(STEP, max_size=100)


def play(steps: Schedule) -> None:
    """Run a world through the given steps, and then mend all.

    Raises:
        AssertionError: a check fails.
    """
    world = World()
    world.heal()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.heal()
    world.check()
