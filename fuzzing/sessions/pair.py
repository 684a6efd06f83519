"""Two brokers taken through the same session, and compared after every step."""

import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fuzzing.sessions import differences
from fuzzing.sessions.client import Client
from fuzzing.sessions.operator import LIMITED, Operator, OperatorStep, PolicyStep, RequestStep
from fuzzing.sessions.side import OBSERVER, Place, Side, Step
from jumpmq.amqp import methods as m
from jumpmq.testing import BrokerProcess

PATIENCE = 1.5
"""Seconds until two brokers must have the same result."""

IMPATIENCE = 0.3
"""Timeout in seconds while a found difference is reduced to a shorter session."""

_SWEPT = (m.QueueDeleteOk, m.ExchangeDeleteOk, m.ChannelClose)

USERS = {3: LIMITED}
"""Users by number of connection."""

Said = dict[Place, list[tuple[Any, ...]]]


class Difference(Exception):
    """The brokers behaved differently.

    Attributes:
        session: the steps up to the difference.
        reference, ours: observations of RabbitMQ, of JumpMQ.
    """

    def __init__(self, session: list[Step | OperatorStep], reference: Any, ours: Any) -> None:
        steps = "\n".join(map(str, session))
        super().__init__(f"{steps}\nRabbitMQ: {reference}\nJumpMQ:   {ours}")
        self.session, self.reference, self.ours = session, reference, ours

    @property
    def step(self) -> Step | OperatorStep:
        """The step before the difference."""
        return self.session[-1]


class Pair:
    """Two running brokers, and the sessions held with both.

    Args:
        reference, ours: the brokers.

    Attributes:
        prefix: prefix of all names of the current session.
        over: the rest of the session is not comparable.
        ended: number of sessions ended by `over`, by reason.
        sessions, steps: totals so far.
    """

    def __init__(self, reference: BrokerProcess, ours: BrokerProcess) -> None:
        self._ports = reference.port, ours.port
        self._operators = [Operator(broker.http_port) for broker in (reference, ours)]
        self._policies: set[tuple[str, str]] = set()
        self._sweepers = [Client(port) for port in self._ports]
        self._sweeping = dict.fromkeys(self._sweepers, False)
        self.sessions = 0
        self._sides: list[Side] = []
        self._queues: set[str] = set()
        self._exchanges: set[str] = set()
        self._history: list[Step | OperatorStep] = []
        self.prefix = ""
        self.over = False
        self.patience = PATIENCE
        self.ended: dict[str, int] = defaultdict(int)
        self.steps = 0

    # --- sessions ---

    def begin(self) -> None:
        self.sessions += 1
        self.prefix = f"g{self.sessions}."
        self._sides = [Side(port, self.prefix, USERS) for port in self._ports]
        self._history = []
        self.over = False

    def end(self) -> None:
        """Close the session's connections, and delete all of its objects."""
        for side in self._sides:
            side.leave()
        for kind, name in self._policies:
            for operator in self._operators:
                operator.take(PolicyStep(kind, name, None), self.prefix)
        self._policies.clear()
        for sweeper in self._sweepers:
            self._sweep(sweeper)
        self._queues.clear()
        self._exchanges.clear()

    def _sweep(self, sweeper: Client) -> None:
        deletions: list[m.Method] = [m.QueueDelete(queue=name) for name in self._queues]
        deletions += [m.ExchangeDelete(exchange=name) for name in self._exchanges]
        for deletion in deletions:
            if not self._sweeping[sweeper]:
                sweeper.send_method(1, m.ChannelOpen())
            sweeper.send_method(1, deletion)
            answer = sweeper.wait(lambda event: isinstance(event.method, _SWEPT))
            assert answer is not None
            self._sweeping[sweeper] = not isinstance(answer.method, m.ChannelClose)
            if not self._sweeping[sweeper]:
                sweeper.send_method(1, m.ChannelCloseOk())  # an exclusive queue
            sweeper.events.clear()

    # --- steps ---

    def connected(self, connection: int) -> bool:
        return self._sides[0].connected(connection)

    def is_open(self, place: Place) -> bool:
        return self._sides[0].is_open(place)

    def ready(self, place: Place, channel: bool = True) -> None:
        """Open the connection and the channel if missing."""
        if not self.connected(place[0]):
            for side in self._sides:
                side.connect(place[0])
        if channel and not self.is_open(place):
            self.take(Step(place, m.ChannelOpen()))

    def delivered(self, place: Place) -> list[int]:
        """Delivery tags received on a channel."""
        return self._sides[0].delivered.get(place, [])

    def is_transactional(self, place: Place) -> bool:
        return place in self._sides[0].transactional

    def take(self, *steps: Step) -> None:
        """Take consecutive steps on a channel of both brokers.

        Raises:
            Difference: an unnamed difference.
        """
        if self.over or not all(side.connected(steps[0].place[0]) for side in self._sides):
            return
        self.steps += len(steps)
        self._history += steps
        for step in steps:
            self._note(step)
            for side in self._sides:
                side.send(step)
        self._both(*(side.settle(steps) for side in self._sides))
        self._compare(steps)

    def operate(self, step: OperatorStep) -> None:
        """Take an operator's step on both brokers.

        Raises:
            Difference: as :meth:`take`.
        """
        if self.over:
            return
        self._history.append(step)
        if isinstance(step, PolicyStep):
            self._policies.add((step.kind, step.name))
            word = "policy"
        else:
            word = step.verb
            self._note_request(step)
        for operator, side in zip(self._operators, self._sides, strict=True):
            side.said.setdefault((0, 0), []).append((word, *operator.take(step, self.prefix)))
        self._compare([], look=True)

    def pause(self, seconds: float) -> None:
        if not self.over:
            time.sleep(seconds)
            self._compare([], look=True)

    def _both(self, *work: Any) -> None:
        for _ in itertools.zip_longest(*work):
            pass

    def _note(self, step: Step) -> None:
        match step.method:
            case m.QueueDeclare(queue=name) if name.startswith(self.prefix):
                self._queues.add(name)
                if any(field[:] == ("x-queue-type", "S", "stream") for field in step.method.arguments):
                    for side in self._sides:
                        side.streams.add(name)
            case m.ExchangeDeclare(exchange=name) if name.startswith(self.prefix):
                self._exchanges.add(name)

    def _note_request(self, step: RequestStep) -> None:
        match step.verb, step.path.partition("?")[0].split("/"):
            case "PUT", ["queues", _, name]:
                self._queues.add(name)
                for side in self._sides:
                    side.watched.setdefault(name, 1)
            case "PUT", ["exchanges", _, name]:
                self._exchanges.add(name)

    # --- comparing ---

    def _compare(self, steps: Sequence[Step], look: bool = False) -> None:
        deadline, wait = time.monotonic() + self.patience, 0.002
        while True:
            if look:
                self._both(*(side.look() for side in self._sides))
            if all(not side.awaits_confirms for side in self._sides) and self._agree():
                break
            if time.monotonic() > deadline:
                if not self._agree():
                    self._disagree()
                break
            time.sleep(wait)
            wait = min(wait * 2, 0.1)
            look = True
        for side in self._sides:
            self._watch(side, steps)
            side.said.clear()

    def _agree(self) -> bool:
        reference, ours = self._sides
        return reference.counts == ours.counts and _sorted(reference.said) == _sorted(ours.said)

    def _disagree(self) -> None:
        reference, ours = self._sides
        if reference.counts == ours.counts and _by_consumer(reference.said) == _by_consumer(ours.said):
            self._finish("deliveries from several queues in another order")
            return
        said = [
            (
                {place: said for place, said in _sorted(one.said).items() if said != _sorted(other.said).get(place)},
                {name: count for name, count in one.counts.items() if count != other.counts.get(name)},
            )
            for one, other in ((reference, ours), (ours, reference))
        ]
        difference = Difference(self._history, *said)
        name = differences.name_of(difference)
        if name is None:
            self.patience = IMPATIENCE
            raise difference
        self._finish(name)

    def _finish(self, reason: str) -> None:
        self.ended[reason] += 1
        self.over = True

    def _watch(self, side: Side, steps: Sequence[Step]) -> None:
        """Count newly declared queues, and drop deleted queues from the counts."""
        for name in [name for name, count in side.counts.items() if isinstance(count, int)]:
            side.watched.pop(name, None)
        side.counts = {}
        for place, said in side.said.items():
            for kind, *values in said:
                if kind == "queue.declare-ok" and place[1] != OBSERVER:
                    name = values[0] if values[0].startswith("amq.") else self.prefix + values[0]
                    side.watched.setdefault(name, place[0])
        for step in steps:
            if isinstance(step.method, m.QueueDeclare) and step.method.queue.startswith(self.prefix):
                side.watched.setdefault(step.method.queue, step.place[0])


def _sorted(said: Said) -> Said:
    """Events in canonical order: answers, returns, confirms, and the deliveries of every consumer keep their own
    order.

    Confirms that a channel's close overtakes are left out, and deliveries of a connection that ends, which one of its
    channels may get when another has returned them: whether they still go out is a matter of chance.
    """
    ended = {place[0] for place, events in said.items() if any(event[0] == "end of the socket" for event in events)}
    kept = {
        place: [event for event in events if not _is_overtaken(event, events, place[0] in ended)]
        for place, events in said.items()
    }
    return {place: sorted(events, key=_stream) for place, events in kept.items() if events}


def _is_overtaken(event: tuple[Any, ...], events: list[tuple[Any, ...]], ended: bool) -> bool:
    if ended:
        return event[0] in ("basic.ack", "basic.nack", "basic.deliver")
    return event[0] in ("basic.ack", "basic.nack") and any(other[0] == "channel.close" for other in events)


def _stream(event: tuple[Any, ...]) -> tuple[Any, ...]:
    match event:
        case ("basic.ack" | "basic.nack", number):
            return "confirm", number
        case ("basic.deliver", *_):
            return ("deliver",)
        case ("basic.cancel", tag, *_):
            return "cancel", tag
        case ("basic.return", *_):
            return ("return",)
    return ("answer",)


def _by_consumer(said: Said) -> Any:
    """Events without the order of deliveries between consumers, and without delivery tags."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for place, events in _sorted(said).items():
        for kind, *values in events:
            if kind == "basic.deliver":
                found[place, values[0]].append(values[2:])
            else:
                found[place].append((kind, *values))
    return found
