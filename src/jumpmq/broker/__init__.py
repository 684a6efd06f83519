"""The live broker: sockets, connections, channels, time. With ``http/`` the only floor that knows asyncio."""

from jumpmq.broker.broker import Broker, BrokerError
from jumpmq.broker.config import Config

__all__ = ["Broker", "BrokerError", "Config"]
