"""Sessions of the page: logins kept by a cookie hidden from scripts and foreign sites.

A session lives for some hours. With a data directory, sessions survive a restart: :data:`FILE` has hashes that identify
a session, but cannot open one. A session ends with the deletion of its user, with a change of the user's password, and
with the expiry of the token that opened the session. A session opened by a token also ends with a restart.

The cookie alone is not sufficient, because browsers add the cookie to requests of any page. A request without other
credentials must therefore have a header that pages of other origins cannot set without permission (:data:`HEADER`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from jumpmq.broker.security.accounts import Principal

if TYPE_CHECKING:
    from jumpmq.broker import Broker

log = logging.getLogger(__name__)

COOKIE = "jumpmq_session"
HEADER = "X-JumpMQ-Page"
"""Header of the page's requests, with any value."""

MAX_SESSIONS = 10_000
MAX_OF_USER = 50
"""Maximum number of sessions per user; beyond the maximum, the oldest session ends."""


FILE = "page-sessions.json"
"""File in the data directory with, for each session: hash of the token, user, hash of the password's hash, end."""

MOST_KEPT = 1000
"""Maximum number of sessions in the file, latest first."""


@dataclass(frozen=True)
class _Session:
    user: Principal
    password_hash: str
    """Digest of the password's hash, see :func:`_digest`."""
    until: float
    """In seconds since the epoch."""


class Sessions:
    """The open sessions of a broker's page.

    Attributes:
        lifetime: seconds from the begin of a session to its end.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.lifetime = broker.config.timing.page_session
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        directory = broker.config.data_dir
        self._file = None if directory is None else directory / FILE
        self._writing: asyncio.Task[None] | None = None
        self._is_dirty = False  # True if the file is not up to date
        if self._file is not None:
            self._sessions.update(_read(self._file, self.lifetime))

    def open(self, user: Principal) -> str:
        """Open a session for an authenticated user; return the cookie's value."""
        token = secrets.token_urlsafe(32)
        own = [key for key, one in self._sessions.items() if one.user == user]
        for key in own[: max(0, len(own) - MAX_OF_USER + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[_key(token)] = _Session(user, self._password_hash(user), time.time() + self.lifetime)
        self._keep()
        return token

    def close(self, headers: Headers) -> None:
        """End the session of a request."""
        for token in _tokens(headers):
            if self._sessions.pop(_key(token), None) is not None:
                self._keep()

    def _keep(self) -> None:
        """Schedule a write of the sessions to the file, in a thread."""
        self._is_dirty = self._file is not None
        if self._is_dirty and self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="page sessions")

    async def written(self) -> None:
        """Wait until the file reflects all opened and closed sessions."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        assert self._file is not None
        try:
            while self._is_dirty:
                self._is_dirty = False
                kept = [(key, one) for key, one in self._sessions.items() if one.user.granted is None]
                shown = [[key.hex(), one.user.name, one.password_hash, one.until] for key, one in kept[-MOST_KEPT:]]
                await asyncio.to_thread(_replace, self._file, json.dumps(shown))
        except OSError as error:
            log.warning("sessions of the page will not survive a restart: %s", error)
        finally:
            self._writing = None

    def user(self, headers: Headers) -> Principal | None:
        """Return the user of a request's session; None without a live session, or without the header."""
        if HEADER not in headers:
            return None
        for token in _tokens(headers):
            key = _key(token)
            session = self._sessions.get(key)
            if session is None:
                continue
            now = time.time()  # setting the clock back must not extend a session
            if now < session.until <= now + self.lifetime and self._is_same(session):
                return session.user
            del self._sessions[key]
        return None

    def _is_same(self, session: _Session) -> bool:
        found = session.user.account(self._broker.topology)
        return found is not None and self._password_hash(session.user) == session.password_hash

    def _password_hash(self, user: Principal) -> str:
        """Return a value that changes with the password; empty for logins with a token."""
        kept = None if user.granted is not None else self._broker.topology.users.get(user.name)
        return _digest(kept.password_hash) if kept is not None else ""


def _digest(password_hash: str) -> str:
    return hashlib.sha256(password_hash.encode()).hexdigest()


def _replace(file: Path, text: str) -> None:
    """Replace a file's content atomically; only the owner can read it."""
    new = file.with_name(file.name + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
        written.write(text)
    new.replace(file)


def _read(file: Path, lifetime: float) -> Iterator[tuple[bytes, _Session]]:
    """Yield the sessions in a file; none for a damaged file, so that users must log in again."""
    now = time.time()
    try:
        entries: Any = json.loads(file.read_text())
        for key, user, password_hash, until in entries:
            if now < until <= now + lifetime:
                yield bytes.fromhex(key), _Session(Principal(str(user)), str(password_hash), float(until))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError) as error:
        log.warning("cannot read %s, and users of the page must log in again: %s", file, error)


def set_cookie(token: str, lifetime: float, secure: bool) -> str:
    """Return the header ``Set-Cookie`` to begin a session for some seconds, or with 0 seconds to end the session."""
    cookie = f"{COOKIE}={token}; Path=/; Max-Age={int(lifetime)}; HttpOnly; SameSite=Strict"
    return cookie + ("; Secure" if secure else "")


def _tokens(headers: Headers) -> Iterator[str]:
    for line in headers.getlist("cookie"):
        try:
            cookies = SimpleCookie(line)
        except CookieError:
            continue
        if COOKIE in cookies:
            yield cookies[COOKIE].value


def _key(token: str) -> bytes:
    """Return the hash of a token, stored in place of the token: the stored sessions cannot be used for a login."""
    return hashlib.sha256(token.encode()).digest()
