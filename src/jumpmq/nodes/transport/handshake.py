"""Mutual proof by both ends of a link that the secret, never sent, is known.

Each end says who it is: cluster, home, boot, version and a nonce; and what it connects for, a link or a call. The end
that connects then sends its proof, and is sent the other's: a keyed hash (HMAC-SHA-256) over who has said what, and
over the certificate of the TLS connection, so that an end that stands between with a certificate of its own gets proofs
that fit neither ("channel binding", as the tls-server-end-point of RFC 5929).
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Any

VERSION = 1
"""Protocol version of links."""

LINK, CALL = "link", "call"
"""Purpose of a connection: records both ways, or requests to the peer's private HTTP listener."""

NONCE = 32
"""Octets of a nonce."""


class HandshakeRefused(Exception):
    """The peer is no part of this broker; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Identity of the peer on a link.

    Attributes:
        home: the number of its home.
        boot: tells the run of its process from all others.
        purpose: purpose of the connection.
        epoch: number of the process among the processes of its home; 0 without one.
    """

    home: int
    boot: str
    purpose: str
    epoch: int = 0


class Handshake:
    """One end's part.

    Args:
        connects: whether this end has connected to the other.
        certificate: of the accepting end, in DER; empty where there is no TLS.
        purpose: of the connection.
        epoch: number of this process among the processes of its home; 0 without one.
    """

    def __init__(
        self,
        connects: bool,
        home: int,
        boot: str,
        cluster: str,
        secret: str,
        certificate: bytes = b"",
        purpose: str = LINK,
        epoch: int = 0,
    ) -> None:
        nonce = secrets.token_hex(NONCE)
        said = {"cluster": cluster, "home": home, "boot": boot, "version": VERSION, "purpose": purpose, "nonce": nonce}
        said |= {"epoch": epoch} if epoch else {}
        self.hello = json.dumps(said).encode()
        self._connects = connects  # whether the local end sends the first proof
        self._cluster = cluster  # which the other end has to name, too
        self._secret = secret.encode()
        self._certificate = hashlib.sha256(certificate).digest()
        self._heard = b""  # the other end's hello

    def hear(self, hello: bytes) -> Peer:
        """Return the claimed identity of the peer, not proved yet.

        Raises:
            Refused: it is of another cluster or version.
        """
        said = json.loads(hello)
        if not isinstance(said, dict):
            raise HandshakeRefused("it does not say who it is")
        version, cluster = said.get("version"), said.get("cluster")
        if version != VERSION:
            raise HandshakeRefused(f"it speaks version {_short(version)} of links, and this home version {VERSION}")
        if cluster != self._cluster:
            raise HandshakeRefused(f"it belongs to cluster {_short(cluster)}")
        self._heard = hello
        return Peer(int(said["home"]), str(said["boot"]), str(said["purpose"]), int(said.get("epoch", 0)))

    def proof(self) -> bytes:
        """Return the proof of this end's knowledge of the secret, after receiving the peer's hello."""
        return self._proof(self._connects)

    def require(self, proof: bytes) -> None:
        """Reject a peer without knowledge of the secret.

        Raises:
            Refused: it does not.
        """
        if not hmac.compare_digest(proof, self._proof(not self._connects)):
            raise HandshakeRefused("it does not know the secret")

    def _proof(self, of_connecting_end: bool) -> bytes:
        first, second = (self.hello, self._heard) if self._connects else (self._heard, self.hello)
        role = b"connects" if of_connecting_end else b"accepts"
        parts = role, self._certificate, hashlib.sha256(first).digest(), hashlib.sha256(second).digest()
        return hmac.digest(self._secret, b"\0".join(parts), "sha256")


def _short(value: Any) -> str:
    return repr(value)[:80]
