"""Requests of the client of etcd. A broker without a cluster does not import this module: aiohttp takes two thirds as
long to import as all the rest."""

import ssl
from typing import Any

import aiohttp

TIMEOUT = 3.0
"""Timeout of a request in seconds. etcd itself gives up a write without a leader after about five seconds."""

CONNECT_TIMEOUT = 1.0

FAILURES = (aiohttp.ClientError, OSError, ValueError, TimeoutError)
"""Exceptions of a failing request or answer."""


class Posting:
    """Persistent connections to the etcd members.

    Args:
        tls: verification of members with ``https``; True for the system's CAs.
        line: maximum octets of a line of an answer.
    """

    def __init__(self, tls: ssl.SSLContext | bool, line: int) -> None:
        self._tls = tls
        self._line = line
        self._session: aiohttp.ClientSession | None = None  # created in the event loop

    def post(self, url: str, body: dict[str, Any], headers: dict[str, str], *, ends: bool = True) -> Any:
        """Send a request. The result is an asynchronous context manager, which may raise :data:`FAILURES`.

        Args:
            ends: False for an answer without an end; otherwise :data:`TIMEOUT` applies.
        """
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=self._line)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT if ends else None, sock_connect=CONNECT_TIMEOUT)
        return self._session.post(url, json=body, timeout=timeout, headers=headers)

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()


def text_of(error: Exception) -> str:
    """Return the text of a failure of :data:`FAILURES`."""
    match error:
        case TimeoutError():
            return "no answer"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return "the connection broke"
        case aiohttp.ClientConnectorError():
            return error.os_error.strerror or str(error)
    return str(error) or type(error).__name__
