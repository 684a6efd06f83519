"""Requests to a broker's management port."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from jumpmq.management.errors import InvalidRequest, NoAnswer, NotManagement, Refusal
from jumpmq.management.tls import ClientTLS

DEFAULT_URL = "http://guest:guest@127.0.0.1:15672"
DEFAULT_PORTS = {"http": 15672, "https": 15671}

TIMEOUT = 60.0
"""Seconds without a single octet from the broker before a request counts as failed."""

TLS_ALERT = "\x15\x03"
"""First characters of a TLS port's answer to a client that does not speak TLS."""


class ManagementClient:
    """The management port of a broker. Holds no connection, and so can be pickled for other processes.

    A place in the API is given by the segments of its path below ``/api``, as they are: they are percent-encoded here.

    Args:
        url: ``http://USER:PASSWORD@HOST:PORT``, or ``https``; user and password are guest unless given, the port is
            15672, or 15671 with TLS.
        timeout: seconds to wait for an answer.
        tls: how the broker is known where the URL says ``https``.

    Attributes:
        address: the URL without user and password.
        user: who asks.

    Raises:
        InvalidRequest: the URL is not one of HTTP.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = TIMEOUT, tls: ClientTLS | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise InvalidRequest(
                f"{_without_secret(url)!r} is not a management URL: its host or port makes no sense; in a password "
                "/ is written %2F, # %23 and ? %3F"
            ) from None
        if parts.scheme not in DEFAULT_PORTS or not host:
            raise InvalidRequest(f"{_without_secret(url)!r} is not a management URL such as {DEFAULT_URL}")
        self._secure = parts.scheme == "https"  # whether with TLS
        self._host, self._port = host, port or DEFAULT_PORTS[parts.scheme]
        self._path = parts.path.rstrip("/")
        self._timeout = timeout  # seconds for an answer
        self._tls = tls or ClientTLS()  # how the server is checked
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{parts.scheme}://{shown}:{self._port}{self._path}"
        self.user = unquote(parts.username or "guest")
        credentials = f"{self.user}:{unquote(parts.password or 'guest')}"
        self._authorization = "Basic " + base64.b64encode(credentials.encode()).decode("ascii")

    def get(self, *path: str, **query: str) -> Any:
        """The JSON at a place.

        Raises:
            Refusal: the broker answered with an error.
            InvalidRequest: a segment is empty.
            NoAnswer: there was no answer.
            NotManagement: what answered is no management port.
        """
        return self.ask("GET", *path, query=query)

    def find(self, *path: str) -> Any | None:
        """Return the JSON at a path; None if it does not exist. Raises as :meth:`get` otherwise."""
        try:
            return self.get(*path)
        except Refusal as refusal:
            if refusal.is_absent:
                return None
            raise

    def put(self, *path: str, body: Any) -> Any:
        """Put an object at a place. Raises as :meth:`get` does."""
        return self.ask("PUT", *path, body=body)

    def post(self, *path: str, body: Any = None) -> Any:
        """Post to a place. Raises as :meth:`get` does."""
        return self.ask("POST", *path, body=body)

    def delete(self, *path: str, headers: Mapping[str, str] | None = None, **query: str) -> None:
        """Delete the resource at a path. Raises as :meth:`get`."""
        self.ask("DELETE", *path, query=query, headers=headers)

    def ask(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the answer; None if it is empty.

        Args:
            body: an object to send as JSON, or octets that are sent as they are.
            query: underscores in its names are sent as hyphens.

        Raises:
            ManagementError: as of :meth:`get`.
        """
        query = {name.replace("_", "-"): value for name, value in (query or {}).items()}
        with self.request(method, *path, body=body, query=query, headers=headers) as response:
            content = response.read()
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise NotManagement(f"{self.address} answered something else than JSON") from None

    @contextmanager
    def request(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """A request whose good answer the block reads. Raises as :meth:`get` does, in the block too."""
        if not all(path):
            raise InvalidRequest("a name must not be empty")
        place = "/".join(["/api", *(quote(segment, safe="", errors="surrogateescape") for segment in path)])
        asked = f"?{urlencode(query, errors='surrogateescape')}" if query else ""
        sent = {"Authorization": self._authorization, "Content-Type": "application/json", **(headers or {})}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, f"{self._path}{place}{asked}", content, sent)
            response = connection.getresponse()
            if response.status >= 300:
                raise self._refusal(response, place)
            yield response
        except (OSError, HTTPException) as error:
            raise self._no_answer(error) from error
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=self._timeout)
        return HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls.context())

    def _no_answer(self, error: Exception) -> NoAnswer | NotManagement:
        if isinstance(error, ssl.SSLCertVerificationError):
            return NotManagement(f"{self.address} is not trusted: {error.verify_message}")
        if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return NotManagement(f"{self.address} does not speak TLS: is it http?")
        if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
            return NotManagement(f"{self.address} {_spoken(str(error))}")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        refused = isinstance(error, ConnectionRefusedError)
        return NoAnswer(f"no broker answers at {self.address}: {reason}", refused=refused)

    def _refusal(self, response: HTTPResponse, place: str) -> Refusal:
        reason = _reason(response.read())
        code = response.status
        refusal = Refusal(reason or f"{self.address}{place} answered {code} {response.reason}", code, reason)
        match code:
            case 401 | 403:
                told = f": {reason}" if reason else ""
                return Refusal(f"{self.address} refuses user '{self.user}'{told}", code, reason)
            case 404 | 405 if not refusal.is_down:
                return Refusal(f"{self.address} has no {place}", code, reason)
        return refusal


def _without_secret(url: str) -> str:
    """Return a URL, possibly malformed, without user and password."""
    before, at, after = url.rpartition("@")
    scheme, apart, _ = before.rpartition("://")
    return f"{scheme}{apart}***{at}{after}" if at else url


def _spoken(line: str) -> str:
    """Name the protocol of a server whose answer does not begin as HTTP."""
    if line.startswith("AMQP"):
        return "speaks AMQP: the management port is another, 15672 unless told"
    return "speaks TLS: is it https?" if line.startswith(TLS_ALERT) else "does not speak HTTP"


def _reason(content: bytes) -> str:
    """Return the broker's reason for a refusal; empty if it gave none."""
    try:
        reason = json.loads(content)["reason"]
    except (ValueError, KeyError, TypeError):
        return ""
    return reason if isinstance(reason, str) else json.dumps(reason)
