"""Mutual proof by both ends of a link that the secret, never sent, is known.

Each end sends a hello with its cluster, home, boot, version, kinds of records and a nonce, and with the purpose of the
connection: a link or a call. Then the connecting end sends its proof, and the accepting end answers with its own. A
proof is a keyed hash (HMAC-SHA-256) over both hellos and over the certificate of the TLS connection. The certificate
binds the proof to the connection: with a man in the middle, who has a certificate of his own, neither proof is valid
("channel binding", as tls-server-end-point of RFC 5929).
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.transport.records import KINDS

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
        home: number of the peer's home.
        boot: identity of the current run of the peer's process.
        purpose: :data:`LINK` or :data:`CALL`.
        epoch: epoch of the peer's process at its home; 0 for a home without epochs.
        kinds: kinds of records known to the peer; empty for a peer of a release that does not tell.
    """

    home: int
    boot: str
    purpose: str
    epoch: int = 0
    kinds: frozenset[int] = frozenset()


class Handshake:
    """An end of a handshake.

    Args:
        connects: True at the end that opened the connection.
        certificate: certificate of the accepting end, in DER; empty without TLS.
        purpose: :data:`LINK` or :data:`CALL`.
        epoch: epoch of this process at its home; 0 for a home without epochs.
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
        said |= {"kinds": sorted(KINDS)} | ({"epoch": epoch} if epoch else {})
        self.hello = json.dumps(said).encode()
        self._connects = connects  # whether the local end sends the first proof
        self._cluster = cluster  # the peer has to name the same cluster
        self._secret = secret.encode()
        self._certificate = hashlib.sha256(certificate).digest()
        self._heard = b""  # the peer's hello

    def hear(self, hello: bytes) -> Peer:
        """Return the claimed identity of the peer, not proved yet.

        Raises:
            HandshakeRefused: the peer belongs to another cluster, or speaks another version.
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
        epoch, kinds = int(said.get("epoch", 0)), frozenset(map(int, said.get("kinds", ())))
        return Peer(int(said["home"]), str(said["boot"]), str(said["purpose"]), epoch, kinds)

    def proof(self) -> bytes:
        """Return the proof of this end's knowledge of the secret, after receiving the peer's hello."""
        return self._proof(self._connects)

    def require(self, proof: bytes) -> None:
        """Verify the peer's proof.

        Raises:
            HandshakeRefused: the peer does not know the secret.
        """
        # Constant time: the duration must not tell an attacker how many octets of a proof are right.
        if not hmac.compare_digest(proof, self._proof(not self._connects)):
            raise HandshakeRefused("it does not know the secret")

    def _proof(self, of_connecting_end: bool) -> bytes:
        first, second = (self.hello, self._heard) if self._connects else (self._heard, self.hello)
        # The role is part of the proof: an attacker cannot return an end's own proof to it.
        role = b"connects" if of_connecting_end else b"accepts"
        # Hashes of fixed length: no other division of the octets gives the same input.
        parts = role, self._certificate, hashlib.sha256(first).digest(), hashlib.sha256(second).digest()
        return hmac.digest(self._secret, b"\0".join(parts), "sha256")


def _short(value: Any) -> str:
    return repr(value)[:80]
