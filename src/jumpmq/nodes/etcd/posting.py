"""Requests of the client of etcd. A broker without a cluster does not import this module: aiohttp takes two thirds as
long to import as all the rest."""

import ssl
from typing import Any

import aiohttp

TIMEOUT = 3.0
"""Seconds until a call is given up; etcd itself gives up a write without a leader after five or so."""

CONNECT_TIMEOUT = 1.0

FAILURES = (aiohttp.ClientError, OSError, ValueError, TimeoutError)
"""Exceptions of a failing request or answer."""


class Posting:
    """Persistent connections to the etcd members.

    Args:
        tls: how members with ``https`` are checked; True is as the system does.
        line: octets of a line of an answer at most.
    """

    def __init__(self, tls: ssl.SSLContext | bool, line: int) -> None:
        self._tls = tls
        self._line = line
        self._session: aiohttp.ClientSession | None = None  # made in the event loop

    def post(self, url: str, body: dict[str, Any], headers: dict[str, str], *, ends: bool = True) -> Any:
        """Make a request, whose answer is entered with ``async with`` and may raise :data:`FAILURES`.

        Args:
            ends: whether the answer is over in :data:`TIMEOUT`; else it may last.
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
