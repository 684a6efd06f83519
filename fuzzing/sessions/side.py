"""A broker's side of a session: connections, generated names, and answers in comparable form.

Completion of a step. The effects of a method are complete when the next method on the same channel is answered; in
queues, when they answer a passive declare; at consumers, when their channels have then answered again. Hence after
every step: a `channel.flow` on its channel, a passive declare of every queue, a `channel.flow` on every channel. The
comparing caller waits for asynchronous effects (confirms after a sync, dead letters in transit).
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fuzzing.sessions.client import Client, Event, publication
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

OBSERVER = 9
"""The channel of every connection reserved for this file."""

Place = tuple[int, int]
"""Number of a connection, and of a channel."""

_INVENTED = re.compile(r"amq\.(?:gen|ctag|rabbitmq\.reply-to)[-.](?!@)[^' ]+")


@dataclass(frozen=True, slots=True)
class Step:
    """A method on a channel, with its message; ``None`` cuts the connection."""

    place: Place
    method: m.Method | None
    properties: bytes = b"\0\0"
    body: bytes = b""

    def __str__(self) -> str:
        if self.method is None:
            return f"{self.place} is cut"
        said = {name: getattr(self.method, name) for name, _ in self.method.layout}
        given = ", ".join(f"{name}={value!r}" for name, value in said.items() if value and name != "reserved_1")
        if isinstance(self.method, m.BasicPublish):
            properties = Properties.parse(self.properties)
            present = {one.name: getattr(properties, one.name) for one in fields(properties)}
            given += f"; { ({name: value for name, value in present.items() if value is not None}) } {self.body!r}"
        return f"{self.place} {self.method.spec_name} {given}"

    @property
    def stirs(self) -> bool:
        """Return true if the step may move messages, or declare or delete queues."""
        return not isinstance(self.method, _STILL)


_STILL = (m.ExchangeDeclare, m.QueueBind, m.ExchangeBind, m.ConfirmSelect, m.TxSelect, m.ChannelFlow, m.ChannelOpen)


class Side:
    """A session on a broker.

    Args:
        port: port of the broker.
        prefix: prefix of all names of the session.
        users: users by connection; guest on the other connections.

    Attributes:
        streams: queues declared as streams, whose messages RabbitMQ counts late.
        said: events not yet compared, by place, in comparable form.
        counts: messages and consumers of the queues as last seen, or the reason of a failure.
        delivered: delivery tags by channel, since its opening.
        transactional: channels with transactions.
        watched: queues to count, with the connection that may access them.
    """

    def __init__(self, port: int, prefix: str, users: Mapping[int, str]) -> None:
        self.said: dict[Place, list[tuple[Any, ...]]] = {}
        self.counts: dict[str, Any] = {}
        self.delivered: dict[Place, list[int]] = {}
        self.transactional: set[Place] = set()
        self.watched: dict[str, int] = {}
        self.streams: set[str] = set()
        self._users = users
        self._port = port
        self._prefix = prefix
        self._clients: dict[int, Client] = {}
        self._open: set[Place] = set()
        self._unconfirmed: dict[Place, set[int]] = {}
        self._published: dict[Place, int] = {}
        self._aliases: dict[str, str] = {}
        self._actual: dict[str, str] = {}

    # --- what is there ---

    def connected(self, connection: int) -> bool:
        return connection in self._clients

    def is_open(self, place: Place) -> bool:
        return place in self._open

    @property
    def awaits_confirms(self) -> bool:
        return any(self._unconfirmed.values())

    def connect(self, connection: int) -> None:
        client = self._clients[connection] = Client(self._port, self._users.get(connection, "guest"))
        self._open_channel(client, OBSERVER)

    def _open_channel(self, client: Client, channel: int) -> None:
        client.send_method(channel, m.ChannelOpen())
        client.call(channel, m.ChannelOpenOk)

    def leave(self) -> None:
        for client in self._clients.values():
            client.hang_up()

    # --- a step ---

    def send(self, step: Step) -> None:
        """Send the method of a step."""
        client, channel = self._clients[step.place[0]], step.place[1]
        method = step.method
        if method is None:
            client.hang_up()
            self._forget(step.place[0])
        elif isinstance(method, m.BasicPublish):
            if step.place in self._unconfirmed and not method.immediate:
                self._published[step.place] += 1
                self._unconfirmed[step.place].add(self._published[step.place])
            client.send(publication(channel, self._translated(method), step.properties, step.body))
        else:
            if isinstance(method, m.ConfirmSelect) and step.place not in self._unconfirmed:
                self._unconfirmed[step.place], self._published[step.place] = set(), 0
            client.send_method(channel, self._translated(method))

    def settle(self, steps: Sequence[Step]) -> Iterator[None]:
        """Wait for the effects of steps on a channel. Yields where the other broker can work meanwhile."""
        step = steps[-1]
        connection, channel = step.place
        client = self._clients.get(connection)
        if client is not None:
            if isinstance(step.method, m.ConnectionClose):
                yield
                client.wait(lambda event: event.method is None or isinstance(event.method, m.ConnectionCloseOk))
            elif isinstance(step.method, m.ChannelClose):
                yield
                client.wait(lambda event: _ends(event, channel) or isinstance(event.method, m.ChannelCloseOk))
            else:
                if isinstance(step.method, m.TxCommit):  # RabbitMQ supports no method before its completion
                    yield
                    client.wait(lambda event: _ends(event, channel) or isinstance(event.method, m.TxCommitOk))
                if isinstance(step.method, m.ChannelOpen):
                    self._open.add(step.place)
                opened = self.is_open(step.place)
                answers = 1 + opened * sum(isinstance(step.method, m.ChannelFlow) for step in steps)
                yield from self._sync([step.place if opened else (connection, OBSERVER)], answers)
        self.collect()
        if any(step.stirs for step in steps):
            yield from self.look()

    def look(self) -> Iterator[None]:
        """Wait for queues and channels, and count the queues."""
        self.counts = {}
        for connection in list(self._clients):
            yield from self._count(connection)
        self.collect()
        yield from self._sync(sorted(self._open))
        self.collect()

    def _sync(self, places: list[Place], answers: int = 1) -> Iterator[None]:
        for connection, channel in places:
            self._clients[connection].send_method(channel, m.ChannelFlow(True))
        yield
        for connection, channel in places:
            client = self._clients[connection]
            found = [event for event in client.events if _is_flow_ok(event, channel)]
            while len(found) < answers:
                event = client.wait(partial(_answers, channel, [*map(id, found)]))
                if event is None or not _is_flow_ok(event, channel):
                    break
                found.append(event)
            else:
                client.events.remove(found[-1])

    def _count(self, connection: int) -> Iterator[None]:
        """Count the queues accessible to this connection; a missing queue costs the channel, which is reopened."""
        names = [name for name, owner in self.watched.items() if owner == connection or not self.connected(owner)]
        names = [name for name in names if name not in self.counts]
        client = self._clients[connection]
        while names and client.open:
            for name in names:
                client.send_method(OBSERVER, m.QueueDeclare(0, self._actual.get(name, name), passive=True))
            yield
            for name in list(names):
                answer = client.wait(
                    lambda event: (
                        _ends(event, OBSERVER)
                        or (event.channel == OBSERVER and isinstance(event.method, m.QueueDeclareOk))
                    )
                )
                names.remove(name)
                if answer is None or answer.channel != OBSERVER:
                    return
                client.events.remove(answer)
                if isinstance(answer.method, m.ChannelClose):
                    self.counts[name] = answer.method.reply_code
                    client.send_method(OBSERVER, m.ChannelCloseOk())
                    self._open_channel(client, OBSERVER)
                    break
                assert isinstance(answer.method, m.QueueDeclareOk)
                counted = (answer.method.message_count, answer.method.consumer_count)
                self.counts[name] = "a stream" if name in self.streams else counted

    # --- what came ---

    def collect(self) -> None:
        """Move received events into `said`, and answer where required."""
        for connection, client in list(self._clients.items()):
            client.drain()
            events, client.events = client.events, []
            for event in events:
                if event.channel != OBSERVER:
                    self._take(connection, client, event)

    def _take(self, connection: int, client: Client, event: Event) -> None:
        place = connection, event.channel
        said = self.said.setdefault(place, [])
        match event.method:
            case None:
                said.append(("end of the socket",))
                self._forget(connection)
                return
            case m.ConnectionClose():
                client.send_method(0, m.ConnectionCloseOk())
                client.wait(lambda event: event.method is None)
            case m.ConnectionCloseOk():
                client.hang_up()
                self._forget(connection)
            case m.ChannelClose():
                client.send_method(event.channel, m.ChannelCloseOk())
                self._close(place)
            case m.ChannelCloseOk():
                self._close(place)
            case m.BasicAck() | m.BasicNack():
                self._confirmed(place, event.method)
                return
        if isinstance(event.method, m.BasicDeliver | m.BasicGetOk):
            self.delivered.setdefault(place, []).append(event.method.delivery_tag)
        elif isinstance(event.method, m.TxSelectOk):
            self.transactional.add(place)
        said.append(self._comparable(event))

    def _confirmed(self, place: Place, method: m.BasicAck | m.BasicNack) -> None:
        waiting = self._unconfirmed.get(place, set())
        tag = method.delivery_tag
        settled = [one for one in waiting if one <= tag] if method.multiple else [tag]
        for one in settled:
            waiting.discard(one)
            self.said[place].append((method.spec_name, one))

    def _close(self, place: Place) -> None:
        self._open.discard(place)
        self._unconfirmed.pop(place, None)
        self.delivered.pop(place, None)
        self.transactional.discard(place)

    def _forget(self, connection: int) -> None:
        self._clients.pop(connection, None)
        for place in [place for place in self._open | set(self._unconfirmed) if place[0] == connection]:
            self._close(place)

    # --- names ---

    def _comparable(self, event: Event) -> tuple[Any, ...]:
        method = event.method
        assert method is not None
        values = [self._neutral(getattr(method, name)) for name, _ in method.layout if not name.startswith("reserved")]
        if isinstance(method, m.QueueDeclareOk) and method.queue in self.streams:
            values[1:] = ["a stream's", "consumers"]
        if event.properties:
            values += [self._properties(event.properties), event.body]
        return method.spec_name, *values

    def _properties(self, octets: bytes) -> dict[str, Any]:
        properties = Properties.parse(octets)
        present = {one.name: getattr(properties, one.name) for one in fields(properties)}
        with contextlib.suppress(TypeError, ValueError):
            present["expiration"] = str(int(present["expiration"]))  # RabbitMQ 4.0 leaves out a plus sign
        return {name: self._neutral(value) for name, value in present.items() if value is not None}

    def _neutral(self, value: Any) -> Any:
        """The value without parts that differ between brokers: generated names, times."""
        match value:
            case str():
                return _INVENTED.sub(lambda found: self._alias(found[0]), value).replace(self._prefix, "")
            case bytes():
                return self._neutral(value.decode("utf-8", "surrogateescape"))
            case Field("time", "T", _):
                return ("time", "T", "now")
            case Field(name, kind, inner):
                return (name, kind, self._neutral(inner))
            case [Field(), *_]:  # a table has no order
                return sorted((self._neutral(one) for one in value), key=repr)
            case list() | tuple():
                return [self._neutral(one) for one in value]
        return value

    def _alias(self, name: str) -> str:
        """``amq.gen-@1`` for the first generated name, and so on."""
        if name not in self._aliases:
            kind = re.match(r"amq\.(?:gen|ctag|rabbitmq\.reply-to)[-.]", name)
            assert kind is not None
            number = 1 + sum(alias.startswith(kind[0]) for alias in self._aliases.values())
            self._aliases[name] = f"{kind[0]}@{number}"
            self._actual[self._aliases[name]] = name
        return self._aliases[name]

    def _translated(self, method: m.M) -> m.M:
        """The method with this broker's generated names."""
        if not self._actual:
            return method
        values = {name: getattr(method, name) for name, _ in method.layout}
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = self._actual.get(value, value)
            elif isinstance(value, bytes):
                text = value.decode("latin-1")
                values[name] = self._actual.get(text, text).encode("latin-1")
        return type(method)(**values)


def _answers(channel: int, known: list[int], event: Event) -> bool:
    """Return true if an event is a new answer to a `channel.flow`, or the end of the channel."""
    return _ends(event, channel) or (_is_flow_ok(event, channel) and id(event) not in known)


def _ends(event: Event, channel: int) -> bool:
    """Return true if an event ends the channel."""
    return (
        event.method is None
        or isinstance(event.method, m.ConnectionClose)
        or (event.channel == channel and isinstance(event.method, m.ChannelClose))
    )


def _is_flow_ok(event: Event, channel: int) -> bool:
    return event.channel == channel and isinstance(event.method, m.ChannelFlowOk)
