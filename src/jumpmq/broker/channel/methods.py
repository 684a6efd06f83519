"""Table of a channel's functions by method, with the shortest functions."""

from collections.abc import Callable
from typing import Any, Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.broker.channel import consuming, declarations, settling, transactions
from jumpmq.broker.channel.confirms import Confirms
from jumpmq.broker.channel.waiting import Waiting


class ActingChannel(
    transactions.TransactionalChannel, consuming.ConsumingChannel, declarations.DeclaringChannel, Protocol
):
    """A channel, from the point of view of all its methods."""


def channel_flow(channel: ActingChannel, method: m.ChannelFlow) -> None:
    if not method.active:
        raise NotImplementedByServer("active=false")
    channel.send(m.ChannelFlowOk(True))


def access_request(channel: ActingChannel, method: m.AccessRequest) -> None:
    channel.send(m.AccessRequestOk(1))


def confirm_select(channel: ActingChannel, method: m.ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.no_wait:
        channel.send(m.ConfirmSelectOk())


ACTIONS: dict[type[m.Method], Callable[[ActingChannel, Any], Waiting | None]] = {
    m.ChannelFlow: channel_flow,
    m.AccessRequest: access_request,
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
    m.ConfirmSelect: confirm_select,
    m.TxSelect: transactions.tx_select,
    m.TxCommit: transactions.tx_commit,
    m.TxRollback: transactions.tx_rollback,
}
"""Functions by method; a function returns the wait to complete first, or None."""
