"""The management API as `jumpmqctl` speaks to it, over the standard library's HTTP client."""

from __future__ import annotations

import base64
import json
import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from jumpmq.cli.errors import CommandError, UsageError

DEFAULT_URL = "http://guest:guest@127.0.0.1:15672"
TIMEOUT = 60.0
"""Seconds to wait for an answer."""


class Refusal(CommandError):
    """The broker answered with an error.

    Attributes:
        code: the HTTP status.
    """

    def __init__(self, text: str, code: int, status: int = os.EX_UNAVAILABLE) -> None:
        super().__init__(text, status)
        self.code = code


class ManagementAPI:
    """One broker's management API.

    Args:
        url: `http://USER:PASSWORD@HOST:PORT`; user and password are guest unless given, the port 15672.
        timeout: seconds to wait for an answer.

    Raises:
        UsageError: the URL is not one of HTTP.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is not a management URL such as {DEFAULT_URL}")
        try:
            port = parts.port or 15672
        except ValueError as error:
            raise UsageError(f"{url!r} is not a management URL: {error}") from None
        connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = connection(parts.hostname, port, timeout=timeout)
        self.address = f"{parts.scheme}://{parts.hostname}:{port}"
        self._prefix = parts.path.rstrip("/")
        self.user = unquote(parts.username or "guest")
        credentials = f"{self.user}:{unquote(parts.password or 'guest')}"
        self._authorization = "Basic " + base64.b64encode(credentials.encode()).decode()

    def get(self, *path: str, **query: str) -> Any:
        """The JSON at a path, given by its segments below `/api`.

        Raises:
            Refusal: the broker answered with an error.
            UsageError: a segment is empty.
            CommandError: there was no answer.
        """
        return self._ask("GET", path, query=query)

    def find(self, *path: str) -> Any | None:
        """The JSON at a path; None where there is nothing.

        Raises:
            CommandError: as of :meth:`get`.
        """
        try:
            return self.get(*path)
        except Refusal as refusal:
            if refusal.code == 404:
                return None
            raise

    def put(self, *path: str, body: Any) -> Any:
        """Puts an object at a path. Raises as :meth:`get` does."""
        return self._ask("PUT", path, body)

    def post(self, *path: str, body: Any) -> Any:
        """Posts to a path. Raises as :meth:`get` does."""
        return self._ask("POST", path, body)

    def delete(self, *path: str, headers: dict[str, str] | None = None, **query: str) -> None:
        """Deletes what is at a path. Raises as :meth:`get` does."""
        self._ask("DELETE", path, headers=headers, query=query)

    def _ask(
        self,
        method: str,
        segments: tuple[str, ...],
        body: Any = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
    ) -> Any:
        if not all(segments):
            raise UsageError("a name must not be empty")
        path = "/".join(["/api", *(quote(segment, safe="", errors="surrogateescape") for segment in segments)])
        if query:
            path += "?" + "&".join(f"{name.replace('_', '-')}={quote(value)}" for name, value in query.items())
        sent = {"Authorization": self._authorization, "Content-Type": "application/json", **(headers or {})}
        text = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, self._prefix + path, body=text, headers=sent)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            text_for_user = (
                f"no broker answers at {self.address}: {reason}. Start one with `jumpmq serve`, or give its --url"
            )
            raise CommandError(text_for_user) from None
        finally:
            self._connection.close()
        if response.status >= 300:
            raise self._refusal(response.status, response.reason, path, answer)
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise CommandError(f"{self.address}{path} answered something else than JSON", os.EX_PROTOCOL) from None

    def _refusal(self, code: int, phrase: str, path: str, answer: bytes) -> Refusal:
        reason = _reason(answer)
        match code:
            case 401 | 403:
                told = f": {reason}" if reason else ""
                return Refusal(f"{self.address} refuses user '{self.user}'{told}", code, os.EX_NOPERM)
            case 404 | 405:
                return Refusal(f"{self.address} has no {path}", code, os.EX_DATAERR)
        return Refusal(reason or f"{self.address}{path} answered {code} {phrase}", code)


def _reason(answer: bytes) -> str:
    """Why the broker refused, as it says it; empty where it is silent."""
    try:
        reason = json.loads(answer)["reason"]
    except (ValueError, KeyError, TypeError):
        return ""
    return reason if isinstance(reason, str) else json.dumps(reason)
