"""Clients of several homes use the same few queues at once, under any failure.

The clients declare, delete, bind and look. Their answers could have come from one broker, which served one
client after the other. The logs are the logs of workers and of a cluster, under the simulations that schedule
all events.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from tests.nodes.log import simulated_nodes as cluster
from tests.nodes.log import simulated_workers as workers
from tests.nodes.log.disks import Disk
from tests.nodes.log.schedules import Choice, Schedule
from tests.simulated_loop import SimulatedLoop
from tests.topology.linearizability import Does, Operation, is_linearizable

from jumpmq.amqp.errors import AMQPError, MetadataTimeout
from jumpmq.amqp.fields import Field
from jumpmq.topology import (
    Arguments,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    ExchangeDefinition,
    Pending,
    Topology,
    Unbind,
)

QUEUES = ("q0", "q1")

RING = "ring"

EXCHANGE = DeclareExchange(ExchangeDefinition("/", RING, "x-consistent-hash", durable=True))

BINDINGS = {name: Binding(RING, "queue", name, b"1") for name in QUEUES}

LIMITS = {limit: Arguments([Field("x-max-length", "l", limit)]) for limit in (1, 2)}


class Queue(NamedTuple):
    """A declared queue: declaration, limit, and True if bound."""

    made_by: str
    limit: int
    bound: bool


State = Queue | None


def declare(by: str, limit: int, state: State) -> tuple[State, str]:
    if state is None:
        return Queue(by, limit, False), "ok"
    return state, "ok" if state.limit == limit else "PreconditionFailed"


def delete(made_by: str, state: State) -> tuple[State, str]:
    return None if state is not None and state.made_by == made_by else state, "ok"


def bind(state: State) -> tuple[State, str]:
    return (None, "NotFound") if state is None else (Queue(state.made_by, state.limit, True), "ok")


def unbind(state: State) -> tuple[State, str]:
    return None if state is None else Queue(state.made_by, state.limit, False), "ok"


def look(state: State) -> tuple[State, State]:
    return state, state


class Home(Protocol):
    """The interface of a simulated process."""

    @property
    def home(self) -> int: ...
    @property
    def topology(self) -> Topology | None: ...


class Reader(Home, Protocol):
    """A reading client of a home; an answer waits until the home's state is on disk."""

    @property
    def disk(self) -> Disk: ...


Links = Mapping[int, Any]

Homes = Mapping[int, Home]


class Clients:
    """Requests of clients to the homes of a simulation, and their answers.

    Attributes:
        on_answer: called with a queue's name after the answer to a change of the queue.

    Args:
        homes: the processes where clients look.
    """

    def __init__(self, homes: Callable[[], Iterable[Home]]) -> None:
        self._homes = homes  # where clients look
        self._seen: list[tuple[int, Operation]] = []  # number of the read of a state that is not everywhere yet
        self.on_answer: Callable[[str], None] = lambda name: None
        self.history: dict[str, list[Operation]] = defaultdict(list)
        self._now = 0
        self._answered_at = 0  # time of the last answer to a change
        self._lacks: dict[Home, int] = {}  # the last change answered without waiting for a process

    def use(self, process: Reader, kind: int, name: str, links: Callable[[], Links], homes: Homes) -> None:
        """Perform an operation of a home's client.

        Args:
            links: working links, by home.
            homes: running processes, by home; without a link a process may lack answered changes.
        """
        topology = process.topology
        assert topology is not None
        declared = topology.vhosts["/"].declared.get(name)
        binding = BINDINGS[name]
        by = f"{len(self.history[name])}"
        change: Change
        does: Does
        match kind:
            case 0 | 1:
                limited = topology.define_queue("/", name, True, arguments=LIMITS[kind + 1], user=by)
                change = DeclareQueue(limited)
                does = partial(declare, by, kind + 1)
            case 2 if declared is not None:
                change = DeleteQueue("/", name, declared.id)
                does = partial(delete, declared.definition.user)
            case 3:
                change, does = Bind("/", binding), bind
            case 4:
                change, does = Unbind("/", binding), unbind
            case _:
                self.look(process, name)
                return
        self._end_looks()
        operation = Operation(f"{type(change).__name__} {by} at {process.home}", does, self._time())
        self.history[name].append(operation)
        pending, before = topology.propose(change, limited=len(self.history[name]) % 2 == 0), links()

        def answered() -> None:
            answer = _answer_of(pending)
            if answer == MetadataTimeout.__name__:
                return  # the client hears no outcome
            self._end_looks()
            operation.answer, operation.ended = answer, self._time()
            operation.changes = operation.answer == "ok"
            self._answered_at, now = operation.ended, links()
            for home, other in homes.items():
                if other is not process and (home not in before or now.get(home) != before[home]):
                    self._lacks[other] = topology.applied
            self.on_answer(name)

        pending.then(answered)

    def look(self, process: Reader, name: str) -> None:
        """Read a home's state, which includes everything answered before, and possibly more.

        Other homes may lack unanswered changes: until all have them, other reads are concurrent.
        """
        topology = process.topology
        assert topology is not None
        if topology.applied < self._lacks.get(process, 0):
            return
        declared = topology.vhosts["/"].declared.get(name)
        state = None
        if declared is not None:
            limit = declared.definition.arguments.get("x-max-length")
            assert limit is not None
            bound = BINDINGS[name] in topology.vhosts["/"].exchanges[RING].bindings
            state = Queue(declared.definition.user, limit.value, bound)
        self._end_looks()
        operation, applied = (
            Operation(f"look at {process.home}", look, self._answered_at, changes=False),
            topology.applied,
        )
        self.history[name].append(operation)

        def answered() -> None:
            operation.answer = state
            self._seen.append((applied, operation))
            self._end_looks()

        if process.disk.is_behind:  # an answer leaves once the state behind it is on disk
            process.disk.when_done(answered)
        else:
            answered()

    def _end_looks(self, *, all: bool = False) -> None:
        if not self._seen:
            return
        least = min((home.topology.applied for home in self._homes() if home.topology is not None), default=0)
        seen, self._seen = self._seen, []
        for applied, operation in seen:
            if applied <= least or all:
                operation.ended = self._time()
            else:
                self._seen.append((applied, operation))

    def _time(self) -> int:
        self._now += 1
        return self._now

    def check(self) -> None:
        self._end_looks(all=True)
        for name, history in self.history.items():
            assert is_linearizable(history, None), "\n".join([f"{name} had no such history", *map(str, history)])


def _answer_of(pending: Pending) -> str:
    try:
        pending.result()
    except AMQPError as error:
        return type(error).__name__
    return "ok"


USES: list[Choice] = [("use", range(1, 4), range(6), QUEUES)]

NODES_CHOICES = [*USES * len(cluster.CHOICES), *cluster.CHOICES]

WORKERS_CHOICES = [*USES * len(workers.CHOICES) * 2, *workers.CHOICES]


class Nodes(cluster.World):
    """A cluster whose clients read everywhere after each answer, and when a process begins to serve."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = Clients(lambda: [process for process in self.processes.values() if process.serves])
        self.clients.on_answer = self.look

    def look(self, name: str) -> None:
        for process in self.processes.values():
            if process.serves:
                self.clients.look(process, name)

    def start(self, home: int) -> None:
        before = self.processes.get(home)
        super().start(home)
        if before is None and (process := self.processes[home]).serves:
            self.look_at_all(process)

    def read(self, home: int, count: int) -> None:
        process = self.processes.get(home)
        served = process is None or process.serves
        super().read(home, count)
        if process is not None and not served and process.serves:
            self.look_at_all(process)

    def look_at_all(self, process: Reader) -> None:
        for name in QUEUES:
            self.clients.look(process, name)

    def use(self, home: int, kind: int, name: str) -> None:
        process = self.processes.get(home)
        if process is not None and process.serves:
            self.clients.use(process, kind, name, dict, {})  # known to all serving processes


def play_nodes(steps: Schedule) -> None:
    """As :func:`cluster.play`, with clients."""
    world = Nodes()
    world.start(1)
    world.processes[1].topology.propose(EXCHANGE)
    world.heal()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.heal()
    for process in world.processes.values():
        world.look_at_all(process)
    world.check()
    world.clients.check()


class Workers(workers.World):
    """Processes of a broker, with clients."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(loop)
        self.clients = Clients(self.processes.values)

    def use(self, home: int, kind: int, name: str) -> None:
        process = self.processes.get(home)
        if process is not None and process.ready:
            self.clients.use(process, kind, name, self.joined, self.processes)


def play_workers(steps: Schedule) -> None:
    """As :func:`workers.play`, with clients."""
    with SimulatedLoop() as loop:
        world = Workers(loop)
        world.start(1)
        loop.turn()
        topology = world.processes[1].topology
        assert topology is not None
        topology.propose(EXCHANGE)
        world.heal()
        world.go_through(steps)
        world.heal()
        for process in world.processes.values():
            for name in QUEUES:
                world.clients.look(process, name)
        world.check()
        world.clients.check()
