"""The live broker: sockets, connections, channels, time. With ``http/`` the only floor that knows asyncio."""

from jumpmq.broker.broker import Broker
from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError

__all__ = ["Broker", "BrokerError", "Config"]
