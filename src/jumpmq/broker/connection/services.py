"""What the broker offers its connections."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jumpmq.broker.channel.services import ChannelServices
from jumpmq.broker.connection.receiving import ReceiveBuffer
from jumpmq.broker.connection.wakefulness import Wakefulness
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.routing.paces import Paces
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.queues.memory import MemoryAccount

if TYPE_CHECKING:
    from jumpmq.broker.connection.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(ChannelServices):
    """What connections share, and their channels.

    Attributes:
        connections: those that are open; each enters and leaves by itself.
        identities: one for each connection: the boot id, which is another at each start, and a counter.
    """

    connections: "set[Connection]"
    identities: Iterator[str]
    memory: MemoryAccount
    alarms: Alarms
    authenticator: Authenticator
    receive_buffer: ReceiveBuffer = field(default_factory=ReceiveBuffer)
    paces: Paces = field(default_factory=Paces)
    wakefulness: Wakefulness = field(default_factory=Wakefulness)
