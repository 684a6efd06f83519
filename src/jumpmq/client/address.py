"""Address of an AMQP broker, parsed from a URL (RabbitMQ's URI specification)."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class AMQPAddress:
    """``amqp://USER:PASSWORD@HOST:PORT/VHOST``, or ``amqps``. Defaults: user and password guest, the protocol's port,
    virtual host ``/``.
    """

    host: str
    port: int
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> AMQPAddress:
        """Parse a URL.

        Raises:
            ValueError: the URL is not an AMQP URL; the text has the reason, without the password.
        """
        parts = urlsplit(url)
        if parts.scheme not in PORTS:
            raise ValueError(f"'{parts.scheme}' is neither amqp nor amqps")
        try:
            port = parts.port or PORTS[parts.scheme]
        except ValueError:
            raise ValueError("the port is not a number up to 65535") from None
        if not parts.hostname:
            raise ValueError("the host is missing")
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
        """Return the URL without user, password and virtual host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"
