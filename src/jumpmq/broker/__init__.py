"""The live broker: sockets, connections, channels, time. With ``http/`` the only floor that knows asyncio.

Its names are imported on first use: a process that does TLS beside the broker needs few of its modules.
"""

from typing import TYPE_CHECKING, Any

from jumpmq._first_use import import_name

if TYPE_CHECKING:
    from jumpmq.broker.broker import Broker
    from jumpmq.broker.config import Config
    from jumpmq.broker.errors import BrokerError

__all__ = ["Broker", "BrokerError", "Config"]

_HOMES = {"Broker": "jumpmq.broker.broker", "Config": "jumpmq.broker.config", "BrokerError": "jumpmq.broker.errors"}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _HOMES, name)
