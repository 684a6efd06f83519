"""JumpMQ: a partitioned AMQP 0-9-1 message broker for Python and Spark.

`jumpmq.running()` starts a broker inside this process. `jumpmq.Broker` is the broker for programs with an event loop.
Both are imported on first use, to save memory in a Spark worker that uses only `jumpmq.hashing`.
"""

from typing import TYPE_CHECKING, Any

from jumpmq._first_use import import_name
from jumpmq._version import __version__

if TYPE_CHECKING:
    from jumpmq.broker import Broker, BrokerError, Config
    from jumpmq.cli.running import RunningBroker, running

__all__ = ["Broker", "BrokerError", "Config", "RunningBroker", "__version__", "running"]

_HOMES = {
    "Broker": "jumpmq.broker",
    "BrokerError": "jumpmq.broker",
    "Config": "jumpmq.broker",
    "RunningBroker": "jumpmq.cli.running",
    "running": "jumpmq.cli.running",
}


def __getattr__(name: str) -> Any:
    return import_name(__name__, _HOMES, name)
