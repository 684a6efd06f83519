"""The broker's services for channels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.remote import RemoteChannels, no_remote
from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import Config
from jumpmq.broker.consumer_groups.live import ConsumerGroups
from jumpmq.broker.routing.sending import NOWHERE, Sender
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.topology import Topology

if TYPE_CHECKING:
    from jumpmq.broker.channel.channel import Channel
    from jumpmq.broker.channel.direct_reply import ReplyQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelServices:
    """Services shared by channels.

    Attributes:
        sender: sends to queues of other homes.
        remote: makes a channel's remote channels, for its queues of other homes.
        reply_queues: direct reply-to addresses in use.
        groups: the consumer groups.
        spans: tells of messages that are traced; None without tracing.
    """

    config: Config
    topology: Topology
    turns: Turns
    upkeep: Upkeep
    authorization: Authorization
    user_limits: UserLimits
    churn: Churn
    groups: ConsumerGroups
    spans: Spans | None
    sender: Sender = NOWHERE
    remote: "Callable[[Channel], RemoteChannels]" = no_remote
    reply_queues: "dict[bytes, ReplyQueue]" = field(default_factory=dict)

    def deliver_reply(self, message: Message) -> bool:
        """Deliver a reply to the requesting channel; return False if it is gone."""
        reply_queue = self.reply_queues.get(message.routing_key)
        if reply_queue is not None:
            reply_queue.deliver([message])
        return reply_queue is not None
