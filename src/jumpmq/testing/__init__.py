"""Brokers for tests: processes on free ports, with all their files in own directories.

    with JumpMQ() as broker:
        broker.port, broker.http_port    # user and password are guest, the virtual host is /
        broker.kill()                    # as a crash would
        broker.start()                   # on the same directory, and other ports

`RabbitMQ` is one to compare with, by default the newest of `Installation.all`. Nothing of the machine is touched: no
system service, no shared Erlang port mapper, no file outside the directory. Leaving the block ends every process that
it started; so does the end of the program, however it ends, on Linux.

Where a test needs neither a process nor a crash, `jumpmq.running` starts a broker in a thread, in 50 ms.
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
