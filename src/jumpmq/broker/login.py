"""Who is there: SASL mechanisms PLAIN and AMQPLAIN, passwords verified, guesses limited."""

import asyncio
import hashlib
import hmac
import ipaddress
import os
from concurrent.futures import ThreadPoolExecutor

from jumpmq.amqp.errors import AccessRefused, AMQPError
from jumpmq.amqp.fields import read_table
from jumpmq.broker.attempts import FailedLogins
from jumpmq.broker.passwords import hash_password, verify_password
from jumpmq.topology import Topology

MECHANISMS = "AMQPLAIN PLAIN"


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
        self._failed = FailedLogins()

    async def authenticate(self, user: str, password: str, peer_host: str) -> bool:
        """Whether the user may log in with this password from this address.

        ``guest`` may from loopback addresses only (RabbitMQ, ``loopback_users``). Who has failed too often lately may
        not; :meth:`wait` tells for how long.
        """
        if self.wait(user, peer_host):
            return False
        if await self._verify(user, password, peer_host):
            return True
        self._failed.note(user, peer_host)
        return False

    def vouched_for(self, user: str, peer_host: str) -> bool:
        """Whether a user may log in whom a certificate vouches for, from this address."""
        return user in self._topology.users and (user != "guest" or is_loopback(peer_host))

    def wait(self, user: str, peer_host: str) -> float:
        """Seconds for which the user's logins from this address are refused, whatever the password; 0 mostly."""
        return self._failed.wait(user, peer_host)

    async def _verify(self, user: str, password: str, peer_host: str) -> bool:
        found = self._topology.users.get(user)
        if found is None or (user == "guest" and not is_loopback(peer_host)):
            await asyncio.get_running_loop().run_in_executor(self._thread, hash_password, password)
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


def is_loopback(host: str) -> bool:
    """Whether the address is of this host's loopback interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
