"""Basic authentication (RFC 7617) against the broker's users, before anything else is looked at."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.amqp.errors import AccessRefused, NotFound
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.errors import Unauthorized, refused, unauthorized

if TYPE_CHECKING:
    from jumpmq.broker import Broker


class BasicAuthentication:
    """Lets requests of known users with a tag for the port pass; ``scope["user"]`` says who."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope.get("client") else ""
        credentials = _credentials(HTTPConnection(scope).headers.get("authorization", ""))
        if credentials is None:
            await unauthorized("Not_Authorized")(scope, receive, send)
            return
        try:
            scope["user"] = await self._broker.authenticate(*credentials, peer)
        except AccessRefused:
            await unauthorized("Login failed")(scope, receive, send)
            return
        try:
            Access.MANAGEMENT.require(self._broker.topology.user(scope["user"]))
        except (Unauthorized, NotFound) as error:
            await refused(str(error))(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _credentials(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if colon else None
