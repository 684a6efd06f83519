"""A proxy that breaks answers of the broker."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

AT_ONCE = 1 << 16


class Proxy:
    """A TCP proxy; the first long answer is cut.

    Args:
        target: port of the broker.
        most: octets of an answer before the cut.
        meanwhile: called between the cut and the next request.

    Attributes:
        port: port of the proxy.
        cuts: number of cut answers.
    """

    def __init__(self, target: int, most: int, meanwhile: Callable[[], None]) -> None:
        self._target = target
        self._most = most
        self._meanwhile = meanwhile
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._serve, name="proxy", daemon=True).start()

    def close(self) -> None:
        """Close the listening port."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self._target))
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(client, broker), daemon=True).start()

    def _ask(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), broker, client:
            while octets := client.recv(AT_ONCE):
                broker.sendall(octets)

    def _answer(self, client: socket.socket, broker: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while octets := broker.recv(AT_ONCE):
                passed += len(octets)
                if passed > self._most and not self.cuts:
                    self.cuts += 1
                    self._meanwhile()
                    break
                client.sendall(octets)
            for end in (client, broker):
                end.shutdown(socket.SHUT_RDWR)
