"""The broker's services for connections."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from jumpmq.broker.channel.channel import ChannelServices
from jumpmq.broker.connection.busy_polling import BusyPolling
from jumpmq.broker.connection.handed import KEEPS_ALL, HandsOver
from jumpmq.broker.connection.pause import Pause
from jumpmq.broker.connection.receiving import ReceiveBuffer
from jumpmq.broker.memory.alarms import Alarms
from jumpmq.broker.routing.run_sizes import RunSizes
from jumpmq.broker.security.authenticator import Authenticator
from jumpmq.queues.memory import MemoryAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(ChannelServices):
    """Services shared by connections and channels.

    Attributes:
        identities: unique identifiers of connections: the boot id, a new one at each start, and a counter.
        hand_over: passes clients to the homes of their virtual hosts.
    """

    identities: Iterator[str]
    memory: MemoryAccount
    alarms: Alarms
    authenticator: Authenticator
    pause: Pause
    hand_over: HandsOver = KEEPS_ALL
    receive_buffer: ReceiveBuffer = field(default_factory=ReceiveBuffer)
    run_sizes: RunSizes = field(default_factory=RunSizes)
    busy_polling: BusyPolling = field(default_factory=BusyPolling)
