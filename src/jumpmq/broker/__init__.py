"""The live broker: sockets, connections, channels, time. Only this layer, ``http/`` and the layers above use asyncio.

Names are imported at their first use: a TLS process beside the broker needs few of the modules.
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
