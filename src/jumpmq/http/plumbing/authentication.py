"""Authentication of requests, before any other processing: Basic (RFC 7617), a bearer token (RFC 6750), or a session of
the page.
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from jumpmq.amqp.errors import AccessRefused
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.errors import Unauthorized, refused, unauthorized
from jumpmq.http.plumbing.sessions import HEADER, Sessions

if TYPE_CHECKING:
    from jumpmq.broker import Broker

RECORD_AGAIN = 600.0
"""Seconds after which a repeated login from an address is logged again."""

REMEMBERED = 10_000
"""Maximum number of remembered pairs of user and address."""


class Authentication:
    """Passes requests of known users with a tag for the port; ``scope["user"]`` is the principal."""

    def __init__(self, app: ASGIApp, broker: Broker, sessions: Sessions) -> None:
        self._app = app
        self._broker = broker
        self._sessions = sessions
        self._recorded: dict[tuple[Principal, str], float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope.get("client") else ""
        headers = HTTPConnection(scope).headers
        credentials = _credentials(headers.get("authorization", ""))
        if credentials is None:
            user = self._sessions.user(headers)
            if user is None:
                # After an answer with Basic, a browser would open its own login dialog in the middle of the page.
                answered = refused if HEADER in headers else unauthorized
                await answered("Not_Authorized")(scope, receive, send)
                return
            scope["user"] = user
        else:
            try:
                scope["user"] = await self._broker.authenticate(*credentials, peer)
            except AccessRefused:
                audit.record("login refused", logging.WARNING, user=credentials[0], mechanism="HTTP", address=peer)
                await unauthorized("Login failed")(scope, receive, send)
                return
        try:
            found = scope["user"].account(self._broker.topology)
            if found is None:
                raise Unauthorized("Login failed")
            Access.MANAGEMENT.require(found)
        except Unauthorized as error:
            await refused(str(error))(scope, receive, send)
            return
        if credentials is not None:  # the login of a session was recorded at its begin
            self._record(scope["user"], peer)
        await self._app(scope, receive, send)

    def _record(self, user: Principal, peer: str) -> None:
        """Log a login. Every request is a login, so repeated logins are logged once per interval."""
        now = time.monotonic()
        if now - self._recorded.get((user, peer), -RECORD_AGAIN) >= RECORD_AGAIN:
            if len(self._recorded) >= REMEMBERED:
                self._recorded.clear()
            self._recorded[user, peer] = now
            audit.record("login", user=user.name, mechanism="HTTP", address=peer)


def _credentials(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() == "bearer":
        return "", encoded.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if colon else None
