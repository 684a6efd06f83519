"""A channel of a live connection: its state, and which piece of the floor acts on which method.

Publishing is in :mod:`publishing`, consuming in :mod:`consuming`, acknowledging in :mod:`settling`, transactions in
:mod:`transactions`; what changes or looks up definitions in :mod:`declarations`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound, NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.broker import consuming, declarations, direct_reply, publishing, settling, transactions
from jumpmq.broker.confirms import Confirms
from jumpmq.broker.consumers import ChannelConsumer
from jumpmq.broker.transactions import Transaction
from jumpmq.queues import Queue

if TYPE_CHECKING:
    from jumpmq.broker.connection import Connection


class Channel:
    """One open channel.

    Attributes:
        unacknowledged: deliveries that await their acknowledgement, by delivery tag, in order.
        prefetch: deliveries that all consumers of the channel together may hold, 0 is any number.
        consumer_prefetch: the prefetch that the next consumers get.
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
            consuming.remove(self, consumer)
        if self.reply_queue is not None:
            self.reply_queue.close()
        transactions.unclaim(self)
        settling.give_back(list(self.unacknowledged.values()))
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

    # --- what methods need ---

    def serve(self) -> None:
        """Offer the channel's consumers what waits for them; they may have room again."""
        for consumer in list(self.consumers.values()):
            if consumer.queue.ready_count and consumer.capacity() > 0:
                consumer.queue.dispatch()

    def queue(self, name: str) -> Queue:
        """The queue of that name, "" being the one declared last on this channel.

        Raises:
            NotFound: there is none.
            ResourceLocked: it is another connection's.
        """
        return self.connection.vhost.queue(self.resolve(name), self.connection.name)

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
    m.BasicQos: consuming.basic_qos,
    m.BasicConsume: consuming.basic_consume,
    m.BasicCancel: consuming.basic_cancel,
    m.BasicGet: consuming.basic_get,
    m.BasicNack: settling.basic_nack,
    m.BasicReject: settling.basic_reject,
    m.BasicRecover: settling.basic_recover,
    m.BasicRecoverAsync: settling.basic_recover,
    m.ConfirmSelect: Channel._confirm_select,
    m.TxSelect: transactions.tx_select,
    m.TxCommit: transactions.tx_commit,
    m.TxRollback: transactions.tx_rollback,
}
"""What a channel does about each method."""
