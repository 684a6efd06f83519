"""What the broker offers its connections and channels."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumpmq.broker.commit.turns import Turns
from jumpmq.broker.config import Config
from jumpmq.broker.connection.receiving import ReceiveBuffer
from jumpmq.broker.connection.user_limits import UserLimits
from jumpmq.broker.connection.wakefulness import Wakefulness
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.routing.paces import Paces
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues.memory import MemoryAccount
from jumpmq.topology import Topology

if TYPE_CHECKING:
    from jumpmq.broker.channel.direct_reply import ReplyQueue
    from jumpmq.broker.connection.connection import Connection


@dataclass(frozen=True, slots=True)
class Services:
    """What connections share.

    Attributes:
        connections: those that are open; each enters and leaves by itself.
        identities: one for each connection: the boot id, which is another at each start, and a counter.
        reply_queues: direct reply-to addresses in use.
    """

    config: Config
    topology: Topology
    turns: Turns
    upkeep: Upkeep
    memory: MemoryAccount
    alarms: Alarms
    authorization: Authorization
    authenticator: Authenticator
    user_limits: UserLimits
    connections: "set[Connection]"
    identities: Iterator[str]
    reply_queues: "dict[bytes, ReplyQueue]"
    receive_buffer: ReceiveBuffer
    paces: Paces
    churn: Churn
    wakefulness: Wakefulness
    spans: Spans | None


def unique_name() -> str:
    """A name that nobody else has."""
    return secrets.token_urlsafe(16)
