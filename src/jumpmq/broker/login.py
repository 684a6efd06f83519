"""Who is there: SASL mechanisms PLAIN and AMQPLAIN, and passwords as argon2id hashes."""

import asyncio
import hashlib
import hmac
import ipaddress
import os
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from jumpmq.amqp.errors import AccessRefused, AMQPError
from jumpmq.amqp.fields import read_table
from jumpmq.topology import Topology

MECHANISMS = b"AMQPLAIN PLAIN"

# RFC 9106's recommendations take 64 MB and more a login; these are the parameters of OWASP's password storage cheat
# sheet with the least time at 19 MB.
_hasher = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def hash_password(password: str) -> str:
    """The argon2id hash of a password, with a salt of its own."""
    return _hasher.hash(password)


def read_credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password from the response of ``connection.start-ok``.

    Raises:
        AccessRefused: the mechanism is unknown or the response malformed.
    """
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\0")
            return user.decode(), password.decode()
        if mechanism == "AMQPLAIN":
            fields, _ = read_table(len(response).to_bytes(4) + response)
            values = {field.name: field.value for field in fields}
            user, password = values["LOGIN"], values["PASSWORD"]
            if isinstance(user, str) and isinstance(password, str):
                return user, password
    except (ValueError, KeyError, AMQPError):
        pass
    raise refusal(mechanism)


def refusal(mechanism: str) -> AccessRefused:
    """RabbitMQ's answer to a failed login, which does not say what was wrong."""
    return AccessRefused(
        f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    )


class Authenticator:
    """Verifies passwords, off the event loop since a verification takes some 20 ms of a core.

    A password that was verified is remembered by a keyed digest, so that clients that connect often cost nothing.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jumpmq-login")
        self._key = os.urandom(32)
        self._known: dict[str, tuple[str, bytes]] = {}

    async def authenticate(self, user: str, password: str, peer_host: str) -> bool:
        """Whether the user may log in with this password from this address.

        ``guest`` may from loopback addresses only (RabbitMQ, ``loopback_users``).
        """
        found = self._topology.users.get(user)
        if found is None or (user == "guest" and not is_loopback(peer_host)):
            await asyncio.get_running_loop().run_in_executor(self._thread, _hasher.hash, password)
            return False
        digest = hmac.digest(self._key, password.encode(), hashlib.sha256)
        known_hash, known_digest = self._known.get(user, ("", b""))
        if known_hash == found.password_hash and hmac.compare_digest(known_digest, digest):
            return True
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(self._thread, verify_password, found.password_hash, password):
            return False
        self._known[user] = (found.password_hash, digest)
        return True

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def verify_password(password_hash: str, password: str) -> bool:
    """Whether the hash is the password's."""
    try:
        return _hasher.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def is_loopback(host: str) -> bool:
    """Whether the address is of this host's loopback interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
