"""Methods of a channel about definitions (AMQP 0-9-1, classes exchange and queue).

Each method proposes one change to the topology. The answer is sent when the change is accepted and on disk.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.broker.channel import direct_reply, pseudo_queue
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.names import unique_name
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue, clock
from jumpmq.topology import Bind, Change, DeclareExchange, DeclareQueue, DeleteExchange, Unbind, rules
from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.queues import queue_deletion
from jumpmq.topology.declared import DeclaredQueue
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.names import stripped


class DeclaringChannel(direct_reply.ReplyChannel, pseudo_queue.ShardedChannel, Protocol):
    """A channel, from the point of view of methods about definitions."""

    authorization: Authorization
    closed: bool
    upkeep: Upkeep

    def find(self, name: str) -> Queue | DeclaredQueue: ...
    def remote_queue(self, name: str) -> DeclaredQueue | None: ...
    def resolve(self, name: str) -> str: ...


def exchange_declare(channel: DeclaringChannel, method: m.ExchangeDeclare) -> Waiting | None:
    connection, name = channel.connection, stripped(method.exchange)
    answer = _answer(channel, method, m.ExchangeDeclareOk())
    if method.passive:
        rules.passive_exchange(connection.vhost, name)
        answer()
        return None
    definition = ExchangeDefinition(
        connection.vhost.name,
        name,
        method.type,
        method.durable,
        method.auto_delete,
        method.internal,
        Arguments.shared(method.arguments),
    )
    return _propose(channel, DeclareExchange(definition), answer)


def exchange_delete(channel: DeclaringChannel, method: m.ExchangeDelete) -> Waiting | None:
    change = DeleteExchange(channel.connection.vhost.name, stripped(method.exchange), method.if_unused)
    return _propose(channel, change, _answer(channel, method, m.ExchangeDeleteOk()))


def exchange_bind(channel: DeclaringChannel, method: m.ExchangeBind) -> Waiting | None:
    return _change_binding(channel, Bind, _exchange_binding(method), _answer(channel, method, m.ExchangeBindOk()))


def exchange_unbind(channel: DeclaringChannel, method: m.ExchangeUnbind) -> Waiting | None:
    return _change_binding(channel, Unbind, _exchange_binding(method), _answer(channel, method, m.ExchangeUnbindOk()))


def queue_declare(channel: DeclaringChannel, method: m.QueueDeclare) -> Waiting | None:
    connection = channel.connection
    name, sharding = stripped(method.queue), channel.topology.sharding
    answer = partial(_declared, channel, method, name)
    if sharding.is_pseudo_queue(connection.vhost, name):
        answer, name = partial(pseudo_queue.declared, channel, method, name), sharding.first_shard(name)
    if name.startswith(direct_reply.NAME):
        direct_reply.declare(channel, name)
        return None
    if method.passive:
        return answer()
    server_named = not name
    if server_named:
        name = f"amq.gen-{unique_name()}"
        answer = partial(_declared, channel, method, name)
    definition = channel.topology.define_queue(
        connection.vhost.name,
        name,
        method.durable and not method.exclusive,  # an exclusive queue ends with its connection
        method.exclusive,
        method.auto_delete,
        Arguments.shared(method.arguments),
        connection.identity if method.exclusive else None,
        connection.user.owner,
        home=channel.topology.home if server_named else None,  # only this client knows the name
    )
    return _propose(channel, DeclareQueue(definition, server_named), answer)


def _declared(channel: DeclaringChannel, method: m.QueueDeclare, name: str) -> Waiting | None:
    """Answer the declaration of an existing queue with its counts."""
    # Not by `find`: in a passive declaration, an empty name is not the queue declared last.
    queue = channel.remote_queue(name) or channel.connection.vhost.queue(name, channel.connection.identity)
    if isinstance(queue, DeclaredQueue):

        def answer(found: m.QueueDeclareOk) -> None:
            channel.last_queue = name
            if not method.no_wait:
                channel.send(found)

        return channel.remote.ask(queue, m.QueueDeclare(queue=name, passive=True), answer)
    queue.touch()
    channel.last_queue = queue.name
    if not method.no_wait:
        channel.send(m.QueueDeclareOk(queue.name, queue.ready_count, len(queue.consumers)))
    return None


def queue_bind(channel: DeclaringChannel, method: m.QueueBind) -> Waiting | None:
    _refuse_sharded(channel, method.queue, "bind")
    binding = _queue_binding(channel, method)
    return _change_binding(channel, Bind, binding, _answer(channel, method, m.QueueBindOk()))


def queue_unbind(channel: DeclaringChannel, method: m.QueueUnbind) -> Waiting | None:
    _refuse_sharded(channel, method.queue, "unbind")
    binding = _queue_binding(channel, method)
    return _change_binding(channel, Unbind, binding, lambda: channel.send(m.QueueUnbindOk()))


def queue_purge(channel: DeclaringChannel, method: m.QueuePurge) -> Waiting | None:
    _refuse_sharded(channel, method.queue, "purge")
    name = channel.resolve(method.queue)
    channel.connection.require_permission("read", "queue", name)
    queue = channel.find(name)
    if isinstance(queue, DeclaredQueue):
        return channel.remote.ask(queue, m.QueuePurge(queue=name), _passing_on(channel, method))
    count = queue.purge()
    if method.no_wait:
        return None
    if queue.purging:
        channel.upkeep.work(f"purging {queue!r}", _answer_when_purged(channel, queue, count))
    else:
        _answer_purge(channel, count)
    return None


def _answer_when_purged(channel: DeclaringChannel, queue: Queue, count: int) -> Iterator[None]:
    while queue.purging:
        queue.trim(clock.now())
        yield
    if not channel.closed:
        _answer_purge(channel, count)


def _answer_purge(channel: DeclaringChannel, count: int) -> None:
    """Answer a purge; after the answer no crash brings the messages back."""
    channel.connection.defer_answers()
    channel.send(m.QueuePurgeOk(count))


def queue_delete(channel: DeclaringChannel, method: m.QueueDelete) -> Waiting | None:
    _refuse_sharded(channel, method.queue, "delete")
    connection, name = channel.connection, channel.resolve(stripped(method.queue))
    connection.require_permission("configure", "queue", name)
    if (remote := channel.remote_queue(name)) is not None:
        asked = m.QueueDelete(queue=name, if_unused=method.if_unused, if_empty=method.if_empty)
        return channel.remote.ask(remote, asked, _passing_on(channel, method))
    change = queue_deletion(
        connection.vhost, name, if_unused=method.if_unused, if_empty=method.if_empty, connection=connection.identity
    )
    # As in RabbitMQ, the deletion of a missing queue succeeds.
    if change is None:
        _answer(channel, method, m.QueueDeleteOk(0))()
        return None
    # Counted before the deletion, which empties the queue.
    count = connection.vhost.queues[name].ready_count
    return _propose(channel, change, _answer(channel, method, m.QueueDeleteOk(count)))


def _refuse_sharded(channel: DeclaringChannel, queue: str, operation: str) -> None:
    channel.topology.sharding.refuse(channel.connection.vhost, queue or channel.last_queue, operation)


def _propose(channel: DeclaringChannel, change: Change, answer: Callable[[], Waiting | None]) -> Waiting | None:
    """Propose a change and answer when accepted; return the wait to complete first, or None.

    Raises:
        AMQPError: the user may not make the change, or it was refused.
    """
    connection = channel.connection
    change.refuse_for_all()
    channel.authorization.require_change(connection.user, change)
    pending = channel.topology.propose(change, connection.change_principal, limited=True)

    def go_on() -> Waiting | None:
        pending.result()
        connection.defer_answers()
        return answer()

    if pending.decided:
        return go_on()
    waiting = Waiting(go_on)
    pending.then(waiting.end)
    # An exclusive queue may be made after the end of its connection, which deletes the queue only now.
    pending.then(connection.leave_queues)
    return waiting


def _answer(channel: DeclaringChannel, method: Any, ok: m.Method) -> Callable[[], None]:
    """Return a function that sends the answer, unless the client has set ``no_wait``."""
    return lambda: None if method.no_wait else channel.send(ok)


def _passing_on(channel: DeclaringChannel, method: Any) -> Callable[[m.Method], None]:
    """Return a function that relays the answer of a queue's home, unless the client has set ``no_wait``."""
    return lambda answer: None if method.no_wait else channel.send(answer)


def _change_binding(
    channel: DeclaringChannel,
    change: type[Bind] | type[Unbind],
    binding: Binding,
    answer: Callable[[], None],
) -> Waiting | None:
    connection = channel.connection
    if change is Bind:
        made: Change = Bind(connection.vhost.name, binding, connection.identity, connection.user.owner)
    else:
        made = Unbind(connection.vhost.name, binding, connection.identity)
    return _propose(channel, made, answer)


def _exchange_binding(method: m.ExchangeBind | m.ExchangeUnbind) -> Binding:
    source, destination = stripped(method.source), stripped(method.destination)
    return Binding(source, "exchange", destination, method.routing_key, Arguments.shared(method.arguments))


def _queue_binding(channel: DeclaringChannel, method: m.QueueBind | m.QueueUnbind) -> Binding:
    queue = channel.resolve(stripped(method.queue))
    key = method.routing_key
    if not method.queue and not key:
        key = queue.encode()  # AMQP 0-9-1, queue.bind: the last declared queue, with its name as key
    return Binding(stripped(method.exchange), "queue", queue, key, Arguments.shared(method.arguments))
