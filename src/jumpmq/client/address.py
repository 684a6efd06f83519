"""Address of an AMQP broker, parsed from a URL (RabbitMQ's URI specification)."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class AMQPAddress:
    """``amqp://USER:PASSWORD@HOST:PORT/VHOST``, or ``amqps``; what is left out is guest, guest, the port and ``/``."""

    host: str
    port: int
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> AMQPAddress:
        """Read a URL.

        Raises:
            ValueError: it is none of these; the text says what is wrong, without the password.
        """
        parts = urlsplit(url)
        if parts.scheme not in PORTS:
            raise ValueError(f"'{parts.scheme}' is neither amqp nor amqps")
        try:
            port = parts.port or PORTS[parts.scheme]
        except ValueError:
            raise ValueError("its port is no number up to 65535") from None
        if not parts.hostname:
            raise ValueError("it names no host")
        if "/" in parts.path[1:]:
            raise ValueError("a slash in the name of a virtual host is written %2F")
        return cls(
            parts.hostname,
            port,
            unquote(parts.path[1:]) if len(parts.path) > 1 else "/",
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            parts.scheme == "amqps",
        )

    def __str__(self) -> str:
        """Without the user and the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"
