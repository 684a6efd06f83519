"""Refusal of requests that a browser sends for pages of foreign sites.

A browser with a user's password sends the password with every request to this port, including requests from pages of
other sites. Headers of the request identify the page's site: ``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata Request
Headers, W3C).

With DNS rebinding, the owner of a site changes the site's name to the loopback address after a page was loaded. For the
browser, this port then belongs to the page's own site. From the loopback address, where guest may log in, browsers may
therefore use only the names of this machine, and names added by the setting ``http_names`` (:class:`OwnNames`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http.plumbing.errors import foreign_page

OF_BROWSERS = ("origin", "referer", "sec-fetch-site", "accept-language")
"""Headers that identify browsers. A GET over plain HTTP from a page without referrer has only the last of these
headers. Pages may set this header, but not suppress it.
"""

OWN = {"same-origin", "none"}
"""Values of ``Sec-Fetch-Site`` for pages of this port, and for addresses typed by the user."""


class SameOrigin:
    """Passes requests that come from no page, or from a page of this port; refuses all others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = foreign_page() if is_foreign(Headers(scope=scope)) else self._app
        await app(scope, receive, send)


class OwnNames:
    """Restricts browsers on this machine to the machine's own names.

    Args:
        names: further host names allowed for browsers.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", socket.gethostname().lower(), *map(str.lower, names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, client = Headers(scope=scope), scope.get("client")
        rebound = client is not None and self._is_rebound(headers, client[0])
        await (foreign_page() if rebound else self._app)(scope, receive, send)

    def _is_rebound(self, headers: Headers, client: str) -> bool:
        """Return True if a browser on this machine uses a foreign host name."""
        if not (is_loopback(client) and any(name in headers for name in OF_BROWSERS)):
            return False
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:
            return True
        return not (name in self._names or is_loopback(name))


def is_loopback(address: str) -> bool:
    """Return True for an address of the loopback interface."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def is_foreign(headers: Headers) -> bool:
    """Return True if a page of a foreign site makes the request."""
    if headers.get("sec-fetch-site", "none").lower() not in OWN:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True
