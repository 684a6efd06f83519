"""A client of a broker with failing processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException

GONE = (pika.exceptions.AMQPError, AMQPConnectorException, OSError, EOFError)
"""Errors of a connection to a failed broker."""


class ReconnectingClient(threading.Thread):
    """Works until stopped, and reconnects after a failure.

    Args:
        port: returns the port of the next connection.

    Attributes:
        lives: number of attempted connections.
    """

    def __init__(self, port: Callable[[], int], stop: threading.Event, name: str | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.stop, self.lives, self._port = stop, 0, port

    def run(self) -> None:
        while not self.stop.is_set():
            self.lives += 1
            with contextlib.suppress(*GONE):
                connection = self.connect()
                try:
                    self.work(connection)
                finally:
                    with contextlib.suppress(*GONE):
                        connection.close()
            time.sleep(0.1)

    def connect(self) -> Any:
        """Open a connection."""
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self._port(), heartbeat=4, blocked_connection_timeout=10, socket_timeout=5
        )
        return pika.BlockingConnection(parameters)

    def work(self, connection: Any) -> None:
        raise NotImplementedError
