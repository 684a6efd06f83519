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
"""Seconds without an octet from the broker after which a request counts as failed."""

TLS_ALERT = "\x15\x03"
"""First characters of a TLS port's answer to a client that does not speak TLS."""


class ManagementClient:
    """Client of a broker's management port. The client holds no connection, and can be pickled for other processes.

    The path of a resource is given as its unencoded segments below ``/api``; the client percent-encodes them.

    Args:
        url: ``http://USER:PASSWORD@HOST:PORT``, or ``https``. By default, user and password are guest; the port is
            15672, or 15671 with TLS.
        timeout: maximum seconds without an octet of the answer.
        tls: certificates for an ``https`` URL.

    Attributes:
        address: the URL without user and password.
        user: name of the user.

    Raises:
        InvalidRequest: the URL is not an HTTP URL.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = TIMEOUT, tls: ClientTLS | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise InvalidRequest(
                f"{_without_secret(url)!r} is not a management URL: host or port is invalid; in a password "
                "/ is written %2F, # %23 and ? %3F"
            ) from None
        if parts.scheme not in DEFAULT_PORTS or not host:
            raise InvalidRequest(f"{_without_secret(url)!r} is not a management URL such as {DEFAULT_URL}")
        self._secure = parts.scheme == "https"
        self._host, self._port = host, port or DEFAULT_PORTS[parts.scheme]
        self._path = parts.path.rstrip("/")
        self._timeout = timeout
        self._tls = tls or ClientTLS()
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{parts.scheme}://{shown}:{self._port}{self._path}"
        self.user = unquote(parts.username or "guest")
        credentials = f"{self.user}:{unquote(parts.password or 'guest')}"
        self._authorization = "Basic " + base64.b64encode(credentials.encode()).decode("ascii")

    def get(self, *path: str, **query: str) -> Any:
        """Return the JSON at a path.

        Raises:
            Refusal: the broker answered with an error.
            InvalidRequest: a segment is empty.
            NoAnswer: no answer, or an incomplete answer.
            NotManagement: the answer is not from a management port.
        """
        return self.ask("GET", *path, query=query)

    def find(self, *path: str) -> Any | None:
        """Return the JSON at a path; None if the path does not exist. Raises the errors of :meth:`get` otherwise."""
        try:
            return self.get(*path)
        except Refusal as refusal:
            if refusal.is_absent:
                return None
            raise

    def put(self, *path: str, body: Any) -> Any:
        """Put an object at a path. Raises the errors of :meth:`get`."""
        return self.ask("PUT", *path, body=body)

    def post(self, *path: str, body: Any = None) -> Any:
        """Post to a path. Raises the errors of :meth:`get`."""
        return self.ask("POST", *path, body=body)

    def delete(self, *path: str, headers: Mapping[str, str] | None = None, **query: str) -> None:
        """Delete the resource at a path. Raises the errors of :meth:`get`."""
        self.ask("DELETE", *path, query=query, headers=headers)

    def ask(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, and return the JSON of the answer; None for an empty answer.

        Args:
            body: a value to send as JSON, or octets to send unchanged.
            query: parameters of the query; underscores in names are sent as hyphens.

        Raises:
            ManagementError: an error of :meth:`get`.
        """
        query = {name.replace("_", "-"): value for name, value in (query or {}).items()}
        with self.request(method, *path, body=body, query=query, headers=headers) as response:
            content = response.read()
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise NotManagement(f"the answer of {self.address} is not JSON") from None

    @contextmanager
    def request(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send a request; the block reads a good answer. Raises the errors of :meth:`get`, also in the block."""
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
    """Return a description of a server whose answer is not HTTP, by the answer's first characters."""
    if line.startswith("AMQP"):
        return "speaks AMQP: use the management port, by default 15672"
    return "speaks TLS: is it https?" if line.startswith(TLS_ALERT) else "does not speak HTTP"


def _reason(content: bytes) -> str:
    """Return the broker's reason for a refusal; empty without a reason."""
    try:
        reason = json.loads(content)["reason"]
    except (ValueError, KeyError, TypeError):
        return ""
    return reason if isinstance(reason, str) else json.dumps(reason)
