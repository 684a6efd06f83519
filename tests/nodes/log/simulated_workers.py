"""The workers' common log under simulated links, disks and crashes, with hypothesis as the scheduler.

A process has a topology, a disk of committed records, and the broker's own classes for the two ends of the
log. The scheduler may request a change at a home, deliver a record, commit a disk, break a link, mend a link,
kill and restart a process, and let time pass. For any schedule: answered changes are known wherever a link is
up, no change takes effect twice, and once all is mended all homes have the same state.
"""

import asyncio
from collections import deque
from contextlib import nullcontext
from typing import Any

from hypothesis import strategies as st
from tests.nodes.log.disks import Disk
from tests.nodes.log.schedules import Choice, Schedule, steps_of
from tests.simulated_loop import SimulatedLoop
from tests.topology.state import state_of

from jumpmq.amqp.errors import AMQPError
from jumpmq.nodes.log.first import First
from jumpmq.nodes.log.follower import LogFollower
from jumpmq.nodes.log.log_link import FollowedLog, serve_log
from jumpmq.nodes.log.shared_log import FIRST
from jumpmq.nodes.timing import TIMING
from jumpmq.nodes.transport.records import LOG
from jumpmq.store.kinds import ENTRY, LET_GO
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    EndMove,
    ExchangeDefinition,
    MoveQueue,
    Pending,
    Topology,
)
from jumpmq.topology.snapshot import followed_digest, records_of

HOMES = 3

NODE = "one@host"

TOGETHER = 3
"""Maximum number of messages in a record."""


class Turns:
    """Replaces the broker's turns: work in a turn is done at once."""

    def turn(self) -> nullcontext[None]:
        return nullcontext()


class End:
    """The local end of a link."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.other: End
        self.links: Links
        self.up = True
        self.on_way: deque[bytes] = deque()  # to the end at the peer

    def send_part(self, kind: int, text: bytes) -> None:
        assert kind == LOG
        if self.up and self.on_way and self.on_way[-1].count(b'"do"') < TOGETHER:
            self.on_way.append(self.on_way.pop()[:-1] + b"," + text + b"]")
        elif self.up:
            self.on_way.append(b"[" + text + b"]")


class Links:
    """A process's links, with the interface used by the log."""

    timing = TIMING

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.on_up: list[Any] = []
        self.on_down: list[Any] = []
        self.ends: dict[int, End] = {}

    def to(self, home: int) -> End | None:
        return self.ends.get(home)


class Process:
    """A home; :meth:`kill` clears its memory."""

    def __init__(self, world: "World", home: int, disk: Disk) -> None:
        self.world = world
        self.home = home
        self.disk = disk
        self.links = Links()
        self.topology: Topology | None = None
        self.task: asyncio.Task[None] | None = None
        self.failed = world.wrong
        self.first: First | None = None
        self.ready = False

    async def start(self) -> None:
        found = self.disk.definitions()
        if self.home == FIRST:
            topology = self._topology(found)
            kept = sorted((value for kind, _, value in found if kind == ENTRY), key=lambda entry: entry["number"])
            trimmed = next((value for kind, _, value in found if kind == LET_GO), 0)
            others = range(2, HOMES + 1)
            records, on_disk, digest = (lambda: records_of(topology)), self.disk.when_done, followed_digest(topology)
            first = First(topology, self.disk, kept, trimmed, records, on_disk, others, "b", digest)
            self.first = first
            topology.order_by(first)
            serve_log(self.links, first)  # type: ignore[arg-type]
            topology.apply(AddHome(FIRST, NODE))
            if not topology.vhosts:
                topology.apply(AddVirtualHost("/"))
            self.ready = True
            return
        applied = next((value for kind, _, value in found if kind == "applied"), None)
        identity = "b" if found else None
        followed = FollowedLog(self.links, Turns(), identity, applied, self.failed.append)  # type: ignore[arg-type]
        given_records = await followed.definitions()
        for kind, key, value in given_records or ():
            self.disk.put(kind, key, value)
        topology = self._topology(found if given_records is None else given_records)
        self.world.boots += 1
        boot, failed = f"boot{self.world.boots}", self.failed.append
        follower = LogFollower(topology, boot, self.disk.when_done, failed, followed_digest(topology), failed)
        topology.order_by(follower)
        await followed.follow(follower, lambda: topology.applied)
        topology.propose(AddHome(self.home, NODE))
        self.ready = True

    def _topology(self, found: list[tuple[str, str, Any]]) -> Topology:
        self.topology = topology = Topology(NODE, self.disk, home=self.home, shared=True)  # type: ignore[arg-type]
        topology.restore(found)
        return topology

    def commit(self) -> None:
        if self.topology is not None:
            self.topology.flush_rings()
        self.disk.commit()


class World:
    """All processes, their links, and the requested changes.

    Args:
        loop: runs the processes' tasks, one iteration at a time.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop  # runs tasks
        self.processes: dict[int, Process] = {}
        self.disks = {home: Disk() for home in range(1, HOMES + 1)}
        self.boots = 0
        self.count = 0
        self.deleted: set[str] = set()  # queues, perhaps
        self.wrong: list[str] = []  # failures, as a sentence each
        self.asked: list[tuple[Process, Pending]] = []

    # --- choices of the scheduler ---

    def start(self, home: int) -> None:
        if home not in self.processes:
            process = self.processes[home] = Process(self, home, self.disks[home])
            process.task = self._loop.create_task(process.start())

    def kill(self, home: int) -> None:
        process = self.processes.pop(home, None)
        if process is not None:
            assert process.task is not None
            process.task.cancel()
            for peer in list(process.links.ends):
                self._cut(process, peer, tell=False)
            self.disks[home].lose()

    def mend(self, home: int) -> None:
        """Link a home to the first home."""
        first, other = self.processes.get(FIRST), self.processes.get(home)
        if first is None or other is None or home == FIRST or home in first.links.ends or not first.ready:
            return
        here, there = End(home), End(FIRST)
        here.other, there.other = there, here
        here.links, there.links = first.links, other.links
        for links, end in ((first.links, here), (other.links, there)):
            links.ends[end.peer] = end
            for told in links.on_up:
                told(end)

    def cut(self, home: int) -> None:
        """Break the link between a home and the first home; records in transit are lost."""
        first = self.processes.get(FIRST)
        if first is not None and home in first.links.ends:
            self._cut(first, home)

    def _cut(self, process: Process, peer: int, *, tell: bool = True) -> None:
        end = process.links.ends.pop(peer)
        end.up = end.other.up = False
        for side, told in ((end, tell), (end.other, True)):
            side.links.ends.pop(side.peer, None)
            for down in side.links.on_down if told else ():
                down(side)

    def arrive(self, home: int, outgoing: bool) -> bool:
        """Deliver the next record on a link; return False without a record."""
        first = self.processes.get(FIRST)
        end = None if first is None else first.links.ends.get(home)
        if end is None:
            return False
        source = end if outgoing else end.other
        if not source.on_way:
            return False
        target = source.other
        target.links.handlers[LOG](target, memoryview(source.on_way.popleft()))
        return True

    def wait(self, seconds: float) -> None:
        self._loop.wait(seconds)

    def commit(self, home: int) -> None:
        if home in self.processes:
            self.processes[home].commit()
        if home == FIRST and FIRST in self.processes and (first := self.processes[FIRST].first) is not None:
            requests = [(entry["home"], entry["request"]) for entry in first.kept if entry["request"]]
            if len(set(requests)) < len(requests):
                self.wrong.append("a change took effect twice")

    def ask(self, home: int, kind: int) -> None:
        """Request a change at a home; the name is unique."""
        process = self.processes.get(home)
        if process is None or not process.ready or process.topology is None:
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
                change = DeclareQueue(process.topology.define_queue("/", name))
            case 4 | 5 | 6 if queues := list(process.topology.vhosts["/"].declared.values()):
                queue = queues[self.count % len(queues)]
                own = queue.name.startswith("n")  # not a client's
                if kind == 4 or not own:  # refused if the queue moves already; queues of clients go on moving
                    change = MoveQueue("/", queue.name, queue.id, self.count % HOMES + 1)
                else:
                    change = (DeleteQueue if kind == 6 else EndMove)("/", queue.name, queue.id)
                    self.deleted.add(queue.name)
            case _:  # often refused: the queue or the exchange may be missing
                change = Bind("/", Binding(f"n{self.count // 2}", "queue", f"n{self.count // 3}", b"2", Arguments()))
        pending = process.topology.propose(change, limited=self.count % 2 == 0)
        self.asked.append((process, pending))
        before = self.joined()
        pending.then(lambda: self._answered(name, kind, pending, before))

    def joined(self) -> dict[int, tuple[Process, End | None]]:
        """Return the processes that share the log now, with their links to the first."""
        first = self.processes.get(FIRST)
        if first is None or first.first is None:
            return {}
        ends = {home: (self.processes[home], first.links.ends[home]) for home in first.first.joined}
        return {FIRST: (first, None), **ends}

    def _answered(self, name: str, kind: int, pending: Pending, before: dict[int, tuple[Process, End | None]]) -> None:
        try:
            pending.result()
        except AMQPError:
            return
        if kind < 3 and name not in self.deleted:
            now = self.joined()
            for home, (process, end) in before.items():  # processes linked during the whole time
                if now.get(home) == (process, end) and not self._knows(process, name):
                    self.wrong.append(f"{name} was accepted, and home {home} does not know it")

    def _knows(self, process: Process, name: str) -> bool:
        assert process.topology is not None
        host = process.topology.vhosts["/"]
        return name in host.declared or name in host.exchanges

    def go_through(self, steps: Schedule) -> None:
        """Take steps; after every step, tasks get a few iterations, so that interruptions are possible."""
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            for _ in range(3):
                if not self._loop.turn():
                    break

    # --- the end ---

    def heal(self) -> None:
        """Mend everything, and deliver everything."""
        for home in range(1, HOMES + 1):
            self.start(home)
        for _ in range(200):
            self._loop.turn()
            for home in range(1, HOMES + 1):
                self.mend(home)
                self.commit(home)
                for outgoing in (True, False):
                    for _ in range(20):
                        if not self.arrive(home, outgoing):
                            break
            if all(process.ready for process in self.processes.values()) and not self._on_way():
                self.commit(FIRST)
                if not self._on_way():
                    break

    def _on_way(self) -> bool:
        ends = [end for process in self.processes.values() for end in process.links.ends.values()]
        return any(end.on_way for end in ends)

    def check(self) -> None:
        """Assert that all homes have equal states, and that every request was answered."""
        assert not self.wrong
        topologies = [process.topology for process in self.processes.values()]
        first, *others = [state_of(one) for one in topologies if one is not None]
        assert len(others) == HOMES - 1
        assert all(other == first for other in others)
        for process, pending in self.asked:
            assert pending.decided or process is not self.processes[process.home], "a change was never answered"


ALL, OTHERS, EITHER = range(1, HOMES + 1), range(2, HOMES + 1), (False, True)

CHOICES: list[Choice] = [
    *[("ask", ALL, range(7))] * 2,
    ("ask", ALL, (0, 4)),
    *[("arrive", OTHERS, EITHER)] * 2,
    *[("commit", ALL)] * 2,
    ("cut", OTHERS),
    ("mend", OTHERS),
    ("kill", ALL),
    ("start", ALL),
    ("wait", (TIMING.log_patience / 2, TIMING.log_patience)),
]

STEP = steps_of(CHOICES)

STEPS = st.lists(STEP, max_size=80)


def play(steps: Schedule) -> None:
    """Run a world through the given steps, and then mend all.

    Raises:
        AssertionError: a check fails.
    """
    with SimulatedLoop() as loop:
        world = World(loop)
        world.heal()
        world.go_through(steps)
        world.heal()
        world.check()
