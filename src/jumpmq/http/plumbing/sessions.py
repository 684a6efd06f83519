"""Sessions of the page: who has logged in there, by a cookie that scripts cannot read and other sites do not send.

A session lives in memory, for some hours; a restart of the broker ends all. It ends with its user's deletion, with a
change of the user's password, and with the token that it was opened by. A cookie alone proves nothing: a browser sends
it along with whatever a page asks. So a request that has no other credentials must also carry a header that no page of
another origin can set unasked (:data:`HEADER`).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from jumpmq.broker.security.accounts import Principal

if TYPE_CHECKING:
    from jumpmq.broker import Broker

COOKIE = "jumpmq_session"
HEADER = "X-JumpMQ-Page"
"""What requests of the page carry, with any value."""

LIFETIME = 8 * 3600.0
"""Seconds after which who has logged in must do so again."""

MAX_SESSIONS = 10_000
MAX_OF_USER = 50
"""Sessions there may be at once; beyond, the oldest ends."""


@dataclass(frozen=True)
class _Session:
    user: Principal
    password_hash: str
    until: float


class Sessions:
    """The open sessions of a broker's page."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, user: Principal) -> str:
        """Begin a session of who has just proved to be this user; returns the cookie's value."""
        token = secrets.token_urlsafe(32)
        own = [key for key, one in self._sessions.items() if one.user == user]
        for key in own[: max(0, len(own) - MAX_OF_USER + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[_key(token)] = _Session(user, self._password_hash(user), time.monotonic() + LIFETIME)
        return token

    def close(self, headers: Headers) -> None:
        """End the session of a request."""
        for token in _tokens(headers):
            self._sessions.pop(_key(token), None)

    def user(self, headers: Headers) -> Principal | None:
        """Whose session a request belongs to; None where it has none that is alive, or lacks the header."""
        if HEADER not in headers:
            return None
        for token in _tokens(headers):
            key = _key(token)
            session = self._sessions.get(key)
            if session is None:
                continue
            if time.monotonic() < session.until and self._is_same(session):
                return session.user
            del self._sessions[key]
        return None

    def _is_same(self, session: _Session) -> bool:
        found = session.user.account(self._broker.topology)
        return found is not None and self._password_hash(session.user) == session.password_hash

    def _password_hash(self, user: Principal) -> str:
        """What a change of the password changes; nothing for who came with a token."""
        kept = None if user.granted is not None else self._broker.topology.users.get(user.name)
        return kept.password_hash if kept is not None else ""


def set_cookie(token: str, secure: bool) -> str:
    """The header ``Set-Cookie`` that begins a session, or with an empty token ends it."""
    age = int(LIFETIME) if token else 0
    return f"{COOKIE}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def _tokens(headers: Headers) -> Iterator[str]:
    for line in headers.getlist("cookie"):
        try:
            cookies = SimpleCookie(line)
        except CookieError:
            continue
        if COOKIE in cookies:
            yield cookies[COOKIE].value


def _key(token: str) -> bytes:
    """What is kept of a token: so that a look at this memory gives no session."""
    return hashlib.sha256(token.encode()).digest()
