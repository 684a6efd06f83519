"""The methods of a channel that change or look up definitions (AMQP 0-9-1, classes exchange and queue).

Each becomes one change that the topology validates and applies; its answer leaves when that is on disk.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.broker.channel import direct_reply
from jumpmq.broker.services import unique_name
from jumpmq.queues import Queue, clock
from jumpmq.topology import changes, rules
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.names import stripped

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel


def exchange_declare(channel: "Channel", method: m.ExchangeDeclare) -> None:
    connection, name = channel.connection, stripped(method.exchange)
    if method.passive:
        rules.passive_exchange(connection.vhost, name)
    else:
        definition = ExchangeDefinition(
            connection.vhost.name,
            name,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            Arguments(method.arguments),
        )
        _make(channel, changes.DeclareExchange(definition))
    if not method.no_wait:
        channel.send(m.ExchangeDeclareOk())


def exchange_delete(channel: "Channel", method: m.ExchangeDelete) -> None:
    _make(channel, changes.DeleteExchange(channel.connection.vhost.name, stripped(method.exchange), method.if_unused))
    if not method.no_wait:
        channel.send(m.ExchangeDeleteOk())


def exchange_bind(channel: "Channel", method: m.ExchangeBind) -> None:
    _change_binding(channel, changes.Bind, _exchange_binding(method))
    if not method.no_wait:
        channel.send(m.ExchangeBindOk())


def exchange_unbind(channel: "Channel", method: m.ExchangeUnbind) -> None:
    _change_binding(channel, changes.Unbind, _exchange_binding(method))
    if not method.no_wait:
        channel.send(m.ExchangeUnbindOk())


def queue_declare(channel: "Channel", method: m.QueueDeclare) -> None:
    connection = channel.connection
    name = channel.topology.sharding.first_shard(connection.vhost, stripped(method.queue))
    if name.startswith(direct_reply.NAME):
        direct_reply.declare(channel, name)
        return
    if method.passive:
        queue = connection.vhost.queue(name, connection.name)
        queue.touch()
    else:
        server_named = not name
        name = name or f"amq.gen-{unique_name()}"
        definition = channel.topology.define_queue(
            connection.vhost.name,
            name,
            method.durable and not method.exclusive,  # it ends with the connection
            method.exclusive,
            method.auto_delete,
            Arguments(method.arguments),
            connection.name if method.exclusive else None,
            str(connection.user),  # without its token
        )
        _make(channel, changes.DeclareQueue(definition, server_named))
        queue = connection.vhost.queues[name]
    queue.touch()
    channel.last_queue = queue.name
    if not method.no_wait:
        channel.send(m.QueueDeclareOk(queue.name, queue.ready_count, len(queue.consumers)))


def queue_bind(channel: "Channel", method: m.QueueBind) -> None:
    _refuse_sharded(channel, method.queue, "bind")
    _change_binding(channel, changes.Bind, _queue_binding(channel, method))
    if not method.no_wait:
        channel.send(m.QueueBindOk())


def queue_unbind(channel: "Channel", method: m.QueueUnbind) -> None:
    _refuse_sharded(channel, method.queue, "unbind")
    _change_binding(channel, changes.Unbind, _queue_binding(channel, method))
    channel.send(m.QueueUnbindOk())


def queue_purge(channel: "Channel", method: m.QueuePurge) -> None:
    _refuse_sharded(channel, method.queue, "purge")
    name = channel.resolve(method.queue)
    channel.connection.require_permission("read", "queue", name)
    queue = channel.queue(name)
    count = queue.purge()
    if method.no_wait:
        return
    if queue.purging:
        channel.upkeep.work(f"purging {queue!r}", _answer_when_purged(channel, queue, count))
    else:
        _answer_purge(channel, count)


def _answer_when_purged(channel: "Channel", queue: Queue, count: int) -> Iterator[None]:
    while queue.purging:
        queue.trim(clock.now())
        yield
    if not channel.closed:
        _answer_purge(channel, count)


def _answer_purge(channel: "Channel", count: int) -> None:
    """After it, no crash brings the messages back."""
    channel.connection.defer_answers()
    channel.send(m.QueuePurgeOk(count))


def queue_delete(channel: "Channel", method: m.QueueDelete) -> None:
    _refuse_sharded(channel, method.queue, "delete")
    connection, name = channel.connection, channel.resolve(stripped(method.queue))
    connection.require_permission("configure", "queue", name)
    change = rules.queue_deletion(
        connection.vhost, name, if_unused=method.if_unused, if_empty=method.if_empty, connection=connection.name
    )
    count = 0
    if change is not None:
        count = connection.vhost.queues[name].ready_count
        _make(channel, change)
    if not method.no_wait:
        channel.send(m.QueueDeleteOk(count))


def _refuse_sharded(channel: "Channel", queue: str, operation: str) -> None:
    channel.topology.sharding.refuse(channel.connection.vhost, queue, operation)


def _make(channel: "Channel", change: changes.Change) -> None:
    rules.refuse_for_all(change)
    channel.authorization.require_change(channel.connection.user, change)
    channel.topology.make(change)
    channel.connection.defer_answers()


def _change_binding(channel: "Channel", change: type[changes.Bind] | type[changes.Unbind], binding: Binding) -> None:
    connection = channel.connection
    if change is changes.Bind:
        _make(channel, changes.Bind(connection.vhost.name, binding, connection.name, str(connection.user)))
    else:
        _make(channel, changes.Unbind(connection.vhost.name, binding, connection.name))


def _exchange_binding(method: m.ExchangeBind | m.ExchangeUnbind) -> Binding:
    source, destination = stripped(method.source), stripped(method.destination)
    return Binding(source, "exchange", destination, method.routing_key, Arguments(method.arguments))


def _queue_binding(channel: "Channel", method: m.QueueBind | m.QueueUnbind) -> Binding:
    queue = channel.resolve(stripped(method.queue))
    key = method.routing_key
    if not method.queue and not key:
        key = queue.encode()  # AMQP 0-9-1, queue.bind: the last declared queue under its own name
    return Binding(stripped(method.exchange), "queue", queue, key, Arguments(method.arguments))
