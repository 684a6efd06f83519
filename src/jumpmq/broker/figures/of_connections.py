"""Metrics of a connection and of a channel, read from the live objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.channel import Channel
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.channel.consumers import DeliveringChannel
from jumpmq.broker.connection.connection import Connection
from jumpmq.broker.figures.values import (
    OF_CHANNELS,
    ChannelFigures,
    ChannelId,
    ConnectionFigures,
    Counts,
    DeliveryHolder,
    PeerAddress,
    TLSFigures,
)
from jumpmq.broker.security.certificates import distinguished_name

DELIVERIES_AT_ONCE = 1000
"""Number of a channel's deliveries examined per step."""

counts_of_channel = attrgetter(*OF_CHANNELS)
"""Returns the counters of a channel, as ``OF_CHANNELS``, from its tally."""


def peer_of(connection: ChannelClient) -> PeerAddress:
    """Return the client of a connection."""
    return PeerAddress(
        connection.identity,
        connection.name,
        connection.provided_name,
        connection.peer_host,
        connection.peer_port,
        connection.user.name,
        connection.user.granted is not None,
        connection.vhost.name,
        connection.node,
    )


def connection_figures(connection: Connection) -> ConnectionFigures:
    """Return the metrics of a connection."""
    protocol = connection.protocol
    host, _, port = connection.name.partition(" -> ")[2].rpartition(":")
    return ConnectionFigures(
        id=connection.identity,
        peer=peer_of(connection),
        state=connection.state,
        mechanism=connection.handshake.mechanism,
        tls=_tls(connection),
        host=host,
        port=int(port),
        channels=len(connection.channels),
        channel_max=protocol.channel_max,
        frame_max=protocol.frame_max,
        timeout=protocol.heartbeat,
        connected_at=connection.connected_at,
        unsent=connection.writing.waiting,
        counts=counts_of_connection(connection),
        reads=connection.reads,
        writes=connection.writing.writes,
        client_properties=connection.handshake.client_properties,
    )


def counts_of_connection(connection: Connection) -> Counts:
    """Return octets received and sent, as ``OF_CONNECTIONS``."""
    return connection.received_octets, connection.writing.octets


def _tls(connection: Connection) -> TLSFigures | None:
    tls = connection.tls
    if tls is None:
        return None
    certificate = tls.certificate
    if certificate is None:
        return TLSFigures(tls.protocol, tls.cipher)
    return TLSFigures(
        tls.protocol,
        tls.cipher,
        distinguished_name(certificate["subject"]),
        distinguished_name(certificate["issuer"]),
        f"{certificate['notBefore']} - {certificate['notAfter']}",
    )


def channel_id(channel: DeliveringChannel) -> ChannelId:
    """Return the identity of a channel."""
    return channel.connection.identity, channel.number


def channel_figures(channel: Channel) -> ChannelFigures:
    """Return the metrics of a channel."""
    transaction, confirms = channel.transaction, channel.confirms
    return ChannelFigures(
        id=channel_id(channel),
        name=channel.name,
        number=channel.number,
        peer=peer_of(channel.connection),
        counts=counts_of_channel(channel.tally),
        confirms=confirms is not None,
        transactional=transaction is not None,
        consumers=len(channel.consumers),
        unacknowledged=len(channel.unacknowledged),
        unconfirmed=confirms.unanswered if confirms is not None else 0,
        uncommitted=transaction.published if transaction is not None else 0,
        acks_uncommitted=transaction.claimed if transaction is not None else 0,
        prefetch=channel.consumer_prefetch,
        global_prefetch=channel.prefetch,
    )


def unsettled(channels: Iterable[DeliveringChannel]) -> Iterator[tuple[DeliveringChannel, list[Message]]]:
    """Yield the unsettled deliveries of channels, without parked ones, some at a time."""
    for channel in channels:
        for messages in channel.unacknowledged.unparked(DELIVERIES_AT_ONCE):
            yield channel, messages


def delivery_holder(channel: DeliveringChannel, message: Message) -> DeliveryHolder:
    """Return the holder of an unsettled delivery of a channel."""
    consumer = message.consumer
    epoch_of = getattr(consumer, "epoch_of", None)
    return DeliveryHolder(
        connection=channel.connection.name,
        channel=channel.number,
        tag=getattr(consumer, "tag", None),
        epoch=0 if epoch_of is None else epoch_of(message),
    )
