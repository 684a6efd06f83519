"""Verification of passwords in threads, round-robin by address. The time of a refusal does not depend on its reason."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple, TypeVar

from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.login_throttle import LoginThrottle
from jumpmq.broker.security.passwords import hash_password, verify_password
from jumpmq.broker.security.tokens import InvalidToken, Tokens, looks_like_token
from jumpmq.broker.timing import BROKER_TIMING
from jumpmq.topology import Topology

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 2
"""Number of passwords verified at once; a password takes some 20 ms of a core and 19 MB."""


class _Verified(NamedTuple):
    """A password hash, and the keyed digest of the matching password."""

    password_hash: str
    digest: bytes


class Attempts(NamedTuple):
    """Counters of login attempts."""

    succeeded: int
    failed: int


class Authenticator:
    """Decides on logins.

    A verified password is cached as a digest, with a key of this process. So the next logins of its user need no
    computation of the hash, neither with the correct nor with a wrong password.

    Args:
        refusal_time: seconds from a login to its refusal, or a multiple of this time.

    Attributes:
        attempts: number of logins, by RabbitMQ's name of the protocol: ``amqp091``, ``http``.
    """

    def __init__(
        self, topology: Topology, tokens: Tokens | None = None, refusal_time: float = BROKER_TIMING.refusal
    ) -> None:
        self._refusal_time = refusal_time
        self._topology = topology  # has the users
        self._tokens = tokens  # reads tokens; None if tokens are not accepted
        self._key = os.urandom(32)  # key of the cached digests
        self._verified: dict[str, _Verified] = {}  # verified passwords by user
        self._throttle = LoginThrottle()  # slows down the guessing of passwords
        self.attempts: dict[str, Attempts] = {}
        self._threads = _FairThreads()  # verify passwords

    def count(self, protocol: str, succeeded: bool) -> None:
        """Count a login attempt."""
        before = self.attempts.get(protocol, Attempts(0, 0))
        self.attempts[protocol] = Attempts(before.succeeded + succeeded, before.failed + (not succeeded))

    async def authenticate(self, user: str, password: str, peer_host: str, protocol: str = "http") -> Principal | None:
        """Verify a login with a password or, instead of the password, a token.

        ``guest`` may log in only from loopback addresses (RabbitMQ, ``loopback_users``).

        Returns:
            The named user, or the user of the token; None if refused.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if await self._throttle.admit(user, peer_host) and (found := await self._user(user, password, peer_host)):
            self.count(protocol, True)
            return found
        self.count(protocol, False)
        self._throttle.failed(user, peer_host)
        await asyncio.sleep(self._refusal_time - (loop.time() - began) % self._refusal_time)
        return None

    async def renew(self, user: Principal, token: str) -> Principal | None:
        """Return the user with a renewed token; None if the token belongs to a different user, or is invalid."""
        try:
            found = await self._tokens.user(token) if self._tokens is not None else None
        except InvalidToken as error:
            log.warning("a new token of user %r is refused: %s", user.name, error)
            return None
        return found if found == user else None

    async def _user(self, user: str, password: str, peer_host: str) -> Principal | None:
        if self._tokens is None or not looks_like_token(password):
            return Principal(user) if await self._verify(user, password, peer_host) else None
        try:
            return await self._tokens.user(password)
        except InvalidToken as error:
            log.warning("a token from %s is refused: %s", peer_host, error)
            return None

    async def hash(self, password: str) -> str:
        """Return the hash of a password for storage, computed in the threads of logins, in some 20 ms."""
        async with self._threads.turn(""):
            return await self._threads.run(hash_password, password)

    def accepts_certificate_user(self, user: str, peer_host: str) -> bool:
        """Return True if a user authenticated by certificate may log in from this address."""
        return user in self._topology.users and (user != "guest" or is_loopback(peer_host))

    async def _verify(self, user: str, password: str, peer_host: str) -> bool:
        found = self._topology.users.get(user)
        if found is None or not found.password_hash or (user == "guest" and not is_loopback(peer_host)):
            return False
        password_hash = found.password_hash
        digest = hashlib.blake2b(password.encode(), key=self._key).digest()
        known = self._known(user, password_hash, digest)
        if known is None:
            async with self._threads.turn(peer_host):
                known = self._known(user, password_hash, digest)  # another login may have verified the password
                if known is None:
                    known = await self._threads.run(verify_password, password_hash, password)
                    if known:
                        self._verified[user] = _Verified(password_hash, digest)
        return known

    def _known(self, user: str, password_hash: str, digest: bytes) -> bool | None:
        """Return True or False for a correct or wrong password; None if the hash must be computed."""
        verified = self._verified.get(user)
        if verified is None or verified.password_hash != password_hash:
            return None
        return hmac.compare_digest(verified.digest, digest)

    def close(self) -> None:
        """Stop the threads, and wait for the running verifications."""
        self._threads.close()


class _FairThreads:
    """A few threads; waiters are served round-robin by address, and leave when cancelled."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="jumpmq-login")
        self._free = THREADS
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def turn(self, address: str) -> "_Turn":
        """Return a context that holds a thread for the address."""
        return _Turn(self, address)

    async def run(self, function: Callable[..., T], *arguments: str) -> T:
        """Call a function in a thread; to be used within :meth:`turn`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def take(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """Give the thread to the next address."""
        while self._waiting:
            address, waiters = self._waiting.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[address] = waiters
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _Turn:
    def __init__(self, threads: _FairThreads, address: str) -> None:
        self._threads = threads
        self._address = address

    async def __aenter__(self) -> None:
        await self._threads.take(self._address)

    async def __aexit__(self, *exc: object) -> None:
        self._threads.give()


@lru_cache(maxsize=4096)
def is_loopback(host: str) -> bool:
    """Return True if the address is of this host's loopback interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
