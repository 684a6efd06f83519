"""How a broker is set up."""

import socket
from dataclasses import dataclass, field
from pathlib import Path


def default_node() -> str:
    """``jumpmq@HOST``, with the short name of this host."""
    return f"jumpmq@{socket.gethostname().split('.')[0]}"


@dataclass(slots=True)
class Config:
    """Settings of a broker.

    Attributes:
        host: address to listen on.
        port: AMQP port, 0 picks a free one.
        http_port: port of the management API, 0 picks a free one.
        data_dir: where durable things are kept; None keeps everything in memory.
        node: name of this node.
        log_level: as in :mod:`logging`.
        heartbeat: seconds, proposed to clients.
        memory_limit: octets held for messages at which publishers are blocked, as a size (``2GB``) or a share of the
            machine's or the container's memory (``0.4``); None is RabbitMQ's default.
        disk_free_limit: octets of free disk below which publishers are blocked, as a size; None is RabbitMQ's default.
        write_backlog: octets waiting for the disk beyond which publishers are no longer read.
    """

    host: str = "127.0.0.1"
    port: int = 5672
    http_port: int = 15672
    data_dir: Path | None = None
    node: str = field(default_factory=default_node)
    log_level: str = "info"
    heartbeat: int = 60
    memory_limit: str | None = None
    disk_free_limit: str | None = None
    write_backlog: int = 64 << 20
