"""Topologies for tests, in few words."""

from collections.abc import Mapping
from typing import Any

from jumpmq.amqp.fields import Field, typed
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.queues import Queue
from jumpmq.topology import (
    Arguments,
    Bind,
    Binding,
    DeclareExchange,
    DeclareQueue,
    Exchange,
    ExchangeDefinition,
    Routes,
    Topology,
    Unbind,
    VirtualHost,
)
from jumpmq.topology.changes.queues import queue_deletion


class Built:
    """A topology and its virtual host ``/``, with one method per operation of a client."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    @property
    def vhost(self) -> VirtualHost:
        return self.topology.vhost("/")

    def exchange(self, name: str, type: str = "direct", arguments: Mapping[str, Any] = {}, **flags: bool) -> Exchange:
        definition = ExchangeDefinition("/", name, type, arguments=Arguments.of(arguments), **flags)
        self.topology.apply(DeclareExchange(definition))
        return self.vhost.exchange(name)

    def queue(self, name: str, arguments: Mapping[str, Any] = {}, server_named: bool = False, **options: Any) -> Queue:
        definition = self.topology.define_queue("/", name, arguments=Arguments.of(arguments), **options)
        self.topology.apply(DeclareQueue(definition, server_named))
        return self.vhost.queue(name)

    def delete_queue(self, name: str, **conditions: Any) -> None:
        deletion = queue_deletion(self.vhost, name, **conditions)
        if deletion is not None:
            self.topology.apply(deletion)

    def bind(self, source: str, queue: str, key: str = "", arguments: Mapping[str, Any] = {}) -> None:
        self.topology.apply(Bind("/", Binding(source, "queue", queue, key.encode(), Arguments.of(arguments))))

    def unbind(self, source: str, queue: str, key: str = "", arguments: Mapping[str, Any] = {}) -> None:
        self.topology.apply(Unbind("/", Binding(source, "queue", queue, key.encode(), Arguments.of(arguments))))

    def feed(self, source: str, exchange: str, key: str = "") -> None:
        """Bind an exchange to an exchange."""
        self.topology.apply(Bind("/", Binding(source, "exchange", exchange, key.encode())))

    def route(self, exchange: str, *published: Message, plain: bool = False) -> Routes:
        return self.vhost.route(exchange, list(published), plain)

    def reached(self, exchange: str, key: str = "", headers: Mapping[str, Any] | None = None) -> list[str]:
        """Return the names of the queues reached by one message, sorted."""
        return sorted(queue.name for queue in self.route(exchange, message(key, headers)).queues)


def message(key: str = "", headers: Mapping[str, Any] | None = None, **properties: Any) -> Message:
    """Return a message with the given routing key, headers and properties."""
    return message_of(
        key, None if headers is None else [Field(name, *typed(headers[name])) for name in headers], **properties
    )


def message_of(key: str, headers: list[Field] | None, **properties: Any) -> Message:
    """A message with headers of given types."""
    return Message("", key.encode(), Properties(headers=headers, **properties).encode(), b"")


def shares(routes: Routes) -> dict[str, int]:
    """Return the number of messages in each queue."""
    return {queue.name: len(messages) for queue, messages in routes.queues.items()}


def keys(routes: Routes) -> dict[str, list[str]]:
    """Return the routing keys of the messages in each queue."""
    return {queue.name: [one.routing_key.decode() for one in messages] for queue, messages in routes.queues.items()}
