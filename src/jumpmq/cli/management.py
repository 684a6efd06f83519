"""The management API as `jumpmqctl` speaks to it, over the standard library's HTTP client."""

from __future__ import annotations

import base64
import json
import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

DEFAULT_URL = "http://guest:guest@127.0.0.1:15672"


class ManagementError(Exception):
    """The broker could not be asked, or refused. Its text is one line; `status` is the exit status for a shell."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class ManagementAPI:
    """One broker's management API.

    Args:
        url: `http://USER:PASSWORD@HOST:PORT`; user and password are guest unless given, the port 15672.

    Raises:
        ManagementError: the URL is not one of HTTP.
    """

    def __init__(self, url: str = DEFAULT_URL) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ManagementError(f"{url!r} is not a management URL such as {DEFAULT_URL}", os.EX_USAGE)
        try:
            port = parts.port or 15672
        except ValueError as error:
            raise ManagementError(f"{url!r} is not a management URL: {error}", os.EX_USAGE) from None
        connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = connection(parts.hostname, port, timeout=60)
        self._address = f"{parts.scheme}://{parts.hostname}:{port}"
        self._prefix = parts.path.rstrip("/")
        self.user = unquote(parts.username or "guest")
        credentials = f"{self.user}:{unquote(parts.password or 'guest')}"
        self._authorization = "Basic " + base64.b64encode(credentials.encode()).decode()

    def list(self, kind: str, vhost: str) -> list[dict[str, Any]]:
        """Every object of a kind (`queues`, `exchanges`, `bindings`) in a virtual host, as the API describes it.

        Raises:
            ManagementError: no answer, a refusal, or no such virtual host.
        """
        try:
            listed: list[dict[str, Any]] = self.get(f"/api/{kind}/{quote(vhost, safe='')}")
        except ManagementError as error:
            if error.status == os.EX_DATAERR:
                raise ManagementError(f"Virtual host '{vhost}' does not exist", os.EX_DATAERR) from None
            raise
        return listed

    def get(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            ManagementError: no answer, or an answer other than 200.
        """
        try:
            self._connection.request("GET", self._prefix + path, headers={"Authorization": self._authorization})
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            text = f"no broker answers at {self._address}: {reason}. Start one with `jumpmq serve`, or give its --url"
            raise ManagementError(text, os.EX_UNAVAILABLE) from None
        finally:
            self._connection.close()
        if response.status == 200:
            return json.loads(body)
        raise self._refusal(response.status, response.reason, path)

    def _refusal(self, status: int, reason: str, path: str) -> ManagementError:
        match status:
            case 401 | 403:
                return ManagementError(f"{self._address} refuses user '{self.user}'", os.EX_NOPERM)
            case 404:
                return ManagementError(f"{self._address} has no {path}", os.EX_DATAERR)
        return ManagementError(f"{self._address}{path} answered {status} {reason}", os.EX_SOFTWARE)
