"""Requests that a browser sends for a page of another site are refused.

A browser that knows a user's password sends it along with whatever a page asks of this port, wherever the page came
from. It also says whose page asks: ``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata Request Headers, W3C).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.http.plumbing.errors import foreign_page

OWN = {"same-origin", "none"}
"""What ``Sec-Fetch-Site`` is for our own pages, and for what the user typed."""


class SameOrigin:
    """Lets requests pass that no page asks for, or a page from this very port."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = foreign_page() if is_foreign(Headers(scope=scope)) else self._app
        await app(scope, receive, send)


def is_foreign(headers: Headers) -> bool:
    """Whether a page of another site asks."""
    if headers.get("sec-fetch-site", "none").lower() not in OWN:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True
