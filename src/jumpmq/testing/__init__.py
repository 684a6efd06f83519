"""Brokers for tests: processes on free ports, each with all files in a separate directory.

    with JumpMQ() as broker:
        broker.port, broker.http_port    # user and password are guest, the virtual host is /
        broker.kill()                    # as in a crash
        broker.start()                   # on the same directory, and other ports

`RabbitMQ` is a broker for comparisons, by default the newest of `Installation.all`. The machine is not affected: no
system service, no shared Erlang port mapper, no file outside the directory. The end of the block ends every process
started in it. On Linux, any end of the program ends these processes, too.

For a test without a process or a crash, `jumpmq.running` starts a broker in a thread, in 50 ms.
"""

from jumpmq.broker import BrokerError
from jumpmq.testing.installations import Installation
from jumpmq.testing.own import JumpMQ
from jumpmq.testing.ports import HOST, accepts_clients, free_ports, listening
from jumpmq.testing.processes import BrokerProcess, children, ending_with_us
from jumpmq.testing.rabbitmq import RabbitMQ, RabbitMQNode

__all__ = [
    "HOST",
    "BrokerError",
    "BrokerProcess",
    "Installation",
    "JumpMQ",
    "RabbitMQ",
    "RabbitMQNode",
    "accepts_clients",
    "children",
    "ending_with_us",
    "free_ports",
    "installed",
    "listening",
]


def installed() -> list[type[BrokerProcess]]:
    """Return JumpMQ and, if installed, RabbitMQ."""
    return [JumpMQ, *([RabbitMQ] if RabbitMQ.available() else [])]
