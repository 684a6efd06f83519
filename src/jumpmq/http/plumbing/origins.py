"""Refusal of requests that a browser sends for pages of foreign sites.

A browser that knows a user's password sends it along with whatever a page asks of this port, wherever the page came
from. It also says whose page asks: ``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata Request Headers, W3C).

A page may also come from a name that its owner lets lead to the loopback address, once it was loaded (DNS rebinding):
to the browser this port then is the page's own. So from the loopback address, where guest is let in, a browser may ask
only by the names of this machine, or by those that the setting ``http_names`` adds (:class:`OwnNames`).
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
"""Headers that identify browsers. The last header is the only header of a GET over plain HTTP from a page without
referrer: pages may set the header, but not suppress it.
"""

OWN = {"same-origin", "none"}
"""Values of ``Sec-Fetch-Site`` for the own page, and for addresses typed by the user."""


class SameOrigin:
    """Passes requests without a page, and from pages of this port."""

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
