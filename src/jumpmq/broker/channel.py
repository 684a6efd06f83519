"""A channel of a live connection: publishing, consuming, acknowledging (AMQP 0-9-1).

Methods that change or inspect definitions are in :mod:`jumpmq.broker.declarations`.
"""

import itertools
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import (
    NotAllowed,
    NotFound,
    NotImplementedByServer,
    PreconditionFailed,
)
from jumpmq.amqp.events import Publish
from jumpmq.amqp.fields import to_python
from jumpmq.amqp.messages import Message, by_holder
from jumpmq.broker import declarations, direct_reply, publishing
from jumpmq.broker.confirms import Confirms
from jumpmq.broker.consumers import ChannelConsumer, consumer_priority
from jumpmq.broker.transactions import Outcome, Transaction
from jumpmq.queues.classic import ClassicQueue

if TYPE_CHECKING:
    from jumpmq.broker.connection import Connection

_by_queue = attrgetter("queue")


class Channel:
    """One open channel.

    Attributes:
        unacknowledged: deliveries that await their acknowledgement, by delivery tag, in order.
        prefetch: deliveries that all consumers of the channel together may hold, 0 is any number.
        consumer_prefetch: the prefetch that the next consumers get.
        flowing: whether the client wants deliveries.
        last_queue: the queue declared last, meant where a method names none.
    """

    def __init__(self, connection: "Connection", number: int) -> None:
        self.connection = connection
        self.broker = connection.broker
        self.number = number
        self.name = f"{connection.name} ({number})"
        self.consumers: dict[str, ChannelConsumer] = {}
        self.unacknowledged: dict[int, Message] = {}
        self.next_delivery_tag = 1
        self.prefetch = 0
        self.consumer_prefetch = 0
        self.flowing = True
        self.last_queue = ""
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.reply_queue: direct_reply.ReplyQueue | None = None
        self.closed = False

    # --- the connection's side ---

    def send(self, method: m.Method) -> None:
        """Send a method on this channel."""
        self.connection.send(self.number, method)

    def receive(self, method: m.Method) -> None:
        """Do what a method asks for.

        Raises:
            AMQPError: it can't be done.
        """
        _HANDLERS[type(method)](self, method)

    def close(self) -> None:
        """Let go of everything: consumers leave, what was not acknowledged returns to its queues."""
        self.closed = True
        for consumer in list(self.consumers.values()):
            self._remove(consumer)
        if self.reply_queue is not None:
            self.reply_queue.close()
        self._unclaim()
        self._requeue(list(self.unacknowledged.values()))
        self.unacknowledged.clear()

    # --- publishing ---

    def publish(self, run: Publish) -> None:
        """Route a run of messages, or keep it for the transaction's commit."""
        if self.transaction is not None:
            publishing.check(self, run)
            self.transaction.publishes.append(run)
            return
        refused = publishing.publish(self, run)
        if self.confirms is not None:
            self._confirm(run.messages, refused)
            self.broker.await_commit(self)

    def _confirm(self, messages: list[Message], refused: list[Message]) -> None:
        assert self.confirms is not None
        if not refused:
            self.confirms.add(len(messages))
            return
        marked = set(map(id, refused))
        for message in messages:
            if id(message) in marked:
                self.confirms.refuse()
            else:
                self.confirms.add(1)

    def answer_confirms(self, committed: int) -> bool:
        """Send the confirms that are due; returns whether some still wait."""
        if self.confirms is None or self.closed:
            return False
        for answer in self.confirms.answers(committed):
            self.send(answer)
        return self.confirms.waiting

    # --- acknowledging ---

    def ack(self, tags: list[int], multiple: bool) -> None:
        """``basic.ack``, one or many."""
        if self.transaction is not None:
            self._claim_for_commit(self.transaction, tags, multiple, self._settle_acked)
        else:
            self._settle_acked(self._claim(tags, multiple))

    def _claim(self, tags: list[int], multiple: bool) -> list[Message]:
        """Take the deliveries with these tags off the channel's list.

        Raises:
            PreconditionFailed: a tag is unknown.
        """
        waiting = self.unacknowledged
        if not multiple:
            messages: list[Message] = []
            for tag in tags:
                message = waiting.pop(tag, None)
                if message is None:
                    self._settle(messages, ClassicQueue.ack)
                    raise PreconditionFailed(f"unknown delivery tag {tag}")
                messages.append(message)
            return messages
        tag = tags[0]
        self._check_tags(tags, multiple)
        if tag in (0, self.next_delivery_tag - 1):
            messages = list(waiting.values())
            waiting.clear()
            return messages
        claimed = list(itertools.takewhile(tag.__ge__, waiting))
        return [waiting.pop(one) for one in claimed]

    def _check_tags(self, tags: Iterable[int], multiple: bool) -> None:
        for tag in tags:
            if tag not in self.unacknowledged and not (multiple and tag == 0):
                raise PreconditionFailed(f"unknown delivery tag {tag}")

    def _claim_for_commit(self, transaction: Transaction, tags: list[int], multiple: bool, outcome: Outcome) -> None:
        """As :meth:`_claim`, for the transaction.

        Raises:
            PreconditionFailed: a tag is unknown.
        """
        waiting, claimed = self.unacknowledged, dict[int, Message]()
        transaction.settlements.append((claimed, outcome))
        if multiple:
            self._check_tags(tags, multiple)
            last = tags[0] or self.next_delivery_tag
            tags = list(itertools.takewhile(last.__ge__, waiting))
        for tag in tags:
            self._check_tags([tag], False)
            claimed[tag] = waiting.pop(tag)

    def _unclaim(self) -> None:
        """Return what waits for a commit to the channel's list."""
        if self.transaction is not None and (claimed := self.transaction.claimed):
            self.unacknowledged = dict(sorted((self.unacknowledged | claimed).items()))

    def _settle_acked(self, messages: list[Message]) -> None:
        self._settle(messages, ClassicQueue.ack)

    def _settle_rejected(self, messages: list[Message]) -> None:
        self._settle(messages, ClassicQueue.reject)

    def _settle_requeued(self, messages: list[Message]) -> None:
        self._requeue(messages)
        self.serve()

    def _settle(self, messages: list[Message], settle: Callable[[ClassicQueue, list[Message]], None]) -> None:
        """Ack, requeue or reject deliveries, and serve their consumers again."""
        for consumer, queue, share in by_holder(messages):
            if consumer is not None:
                consumer.unacknowledged -= len(share)
            settle(queue, share)
        if messages:
            self.serve()

    def serve(self) -> None:
        """Offer the channel's consumers what waits for them; they may have room again."""
        for consumer in list(self.consumers.values()):
            if consumer.queue.ready_count and consumer.capacity() > 0:
                consumer.queue.dispatch()

    def _requeue(self, messages: list[Message]) -> None:
        """Give deliveries back, in the order of their queues."""
        for message in messages:
            if message.consumer is not None:
                message.consumer.unacknowledged -= 1
        for queue, group in itertools.groupby(sorted(messages, key=lambda one: id(one.queue)), key=_by_queue):
            queue.requeue(list(group))

    def _nack(self, method: m.BasicNack) -> None:
        self._give_back(method.delivery_tag, method.multiple, method.requeue)

    def _reject(self, method: m.BasicReject) -> None:
        self._give_back(method.delivery_tag, False, method.requeue)

    def _give_back(self, tag: int, multiple: bool, requeue: bool) -> None:
        outcome = self._settle_requeued if requeue else self._settle_rejected
        if self.transaction is not None:
            self._claim_for_commit(self.transaction, [tag], multiple, outcome)
        else:
            outcome(self._claim([tag], multiple))

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        if not method.requeue:
            raise NotImplementedByServer("requeue=false")
        messages = list(self.unacknowledged.values())
        self.unacknowledged.clear()
        self._requeue(messages)
        if isinstance(method, m.BasicRecover):
            self.send(m.BasicRecoverOk())
        self.serve()

    # --- consuming ---

    def _qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise NotImplementedByServer(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            self.prefetch = method.prefetch_count
        else:
            self.consumer_prefetch = method.prefetch_count
        self.send(m.BasicQosOk())
        self.serve()

    def _consume(self, method: m.BasicConsume) -> None:
        tag = method.consumer_tag or f"amq.ctag-{self.broker.random_name()}"
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        if method.queue == direct_reply.NAME:
            direct_reply.consume(self, tag, method)
            return
        queue = self.source(method.queue)
        priority = consumer_priority(queue, method.arguments)
        consumer = ChannelConsumer(
            self,
            queue,
            tag,
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            prefetch=self.consumer_prefetch,
            priority=priority,
            arguments=to_python(method.arguments),
        )
        queue.add_consumer(consumer)
        self.consumers[tag] = consumer
        if not method.no_wait:
            self.send(m.BasicConsumeOk(tag))
        queue.dispatch()

    def _cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.get(method.consumer_tag)
        if consumer is not None:
            self._remove(consumer)
        elif self.reply_queue is not None and self.reply_queue.tag == method.consumer_tag:
            self.reply_queue.close()
            self.reply_queue = None
        if not method.no_wait:
            self.send(m.BasicCancelOk(method.consumer_tag))

    def _remove(self, consumer: ChannelConsumer) -> None:
        self.consumers.pop(consumer.tag, None)
        queue = consumer.queue
        queue.remove_consumer(consumer)
        if queue.auto_delete and not queue.consumers and not queue.deleted:
            declarations.delete_queue(self.broker, queue)

    def _get(self, method: m.BasicGet) -> None:
        queue = self.source(method.queue)
        queue.touch()
        messages = queue.take(1)
        if not messages:
            self.send(m.BasicGetEmpty())
            return
        (message,) = messages
        tag = self.next_delivery_tag
        self.next_delivery_tag += 1
        ok = m.BasicGetOk(tag, message.redelivered, message.exchange, message.routing_key, queue.ready_count)
        self.connection.send_content(self.number, ok, message)
        if method.no_ack:
            queue.ack(messages)
        else:
            message.consumer = None
            self.unacknowledged[tag] = message

    def queue(self, name: str) -> ClassicQueue:
        """The queue of that name, "" being the one declared last on this channel.

        Raises:
            NotFound: there is none.
            ResourceLocked: it is another connection's.
        """
        return self.connection.vhost.queue(self.resolve(name), self.connection.name)

    def source(self, name: str) -> ClassicQueue:
        """As :meth:`queue`, to consume from: the name of a sharded exchange is the shard with the fewest consumers.

        Raises:
            NotFound, ResourceLocked: as :meth:`queue`.
        """
        return self.queue(self.broker.topology.sharding.local_shard(self.connection.vhost, name))

    def resolve(self, name: str) -> str:
        """The queue name that is meant: "" is the queue declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue

    # --- the channel itself ---

    def _flow(self, method: m.ChannelFlow) -> None:
        if not method.active:
            raise NotImplementedByServer("active=false")
        self.send(m.ChannelFlowOk(True))

    def _confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if self.confirms is None:
            self.confirms = Confirms()
        if not method.no_wait:
            self.send(m.ConfirmSelectOk())

    # --- transactions ---

    def _tx_select(self, method: m.TxSelect) -> None:
        if self.confirms is not None:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction()
        self.send(m.TxSelectOk())

    def _tx_commit(self, method: m.TxCommit) -> None:
        transaction = self._check_transactional()
        while transaction.publishes:
            publishing.publish(self, transaction.publishes.pop(0))
        while transaction.settlements:
            messages, outcome = transaction.settlements.pop(0)
            outcome(list(messages.values()))
        self.connection.hold()
        self.send(m.TxCommitOk())

    def _tx_rollback(self, method: m.TxRollback) -> None:
        self._check_transactional()
        self._unclaim()
        self.transaction = Transaction()
        self.send(m.TxRollbackOk())

    def _check_transactional(self) -> Transaction:
        if self.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self.transaction

    def _ignore(self, method: m.Method) -> None:
        """Nothing is to be done."""

    def _access_request(self, method: m.AccessRequest) -> None:
        self.send(m.AccessRequestOk(1))


Handler = Callable[[Channel, Any], None]

_HANDLERS: dict[type[m.Method], Handler] = {
    m.ChannelFlow: Channel._flow,
    m.ChannelFlowOk: Channel._ignore,
    m.AccessRequest: Channel._access_request,
    m.ExchangeDeclare: declarations.exchange_declare,
    m.ExchangeDelete: declarations.exchange_delete,
    m.ExchangeBind: declarations.exchange_bind,
    m.ExchangeUnbind: declarations.exchange_unbind,
    m.QueueDeclare: declarations.queue_declare,
    m.QueueBind: declarations.queue_bind,
    m.QueueUnbind: declarations.queue_unbind,
    m.QueuePurge: declarations.queue_purge,
    m.QueueDelete: declarations.queue_delete,
    m.BasicQos: Channel._qos,
    m.BasicConsume: Channel._consume,
    m.BasicCancel: Channel._cancel,
    m.BasicGet: Channel._get,
    m.BasicNack: Channel._nack,
    m.BasicReject: Channel._reject,
    m.BasicRecover: Channel._recover,
    m.BasicRecoverAsync: Channel._recover,
    m.ConfirmSelect: Channel._confirm_select,
    m.TxSelect: Channel._tx_select,
    m.TxCommit: Channel._tx_commit,
    m.TxRollback: Channel._tx_rollback,
}
"""What a channel does about each method."""
