"""Sealing of a cluster's values in etcd: unreadable and unforgeable without a secret known only to the cluster's nodes.

Each value is encrypted and authenticated with AES-256-SIV (RFC 5297), with a key derived from the secret. The value's
key in etcd and the cluster's identity are authenticated, too: a value moved to another key, or copied from another
cluster of the same name, does not open. Names of keys stay readable; they show the nodes' names and the length of the
log.

The same value under the same key always has the same sealed form, so that transactions can compare sealed values.

Several secrets allow a change of the secret: the first seals, all of them open.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.etcd.keys import is_of_any_identity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

SEALED = b"sealed1:"
"""Prefix of a sealed value, followed by base64, so that releases without seals can report the value."""

LEAST = 32
"""Minimum characters of a secret."""

KEY = 64
"""Octets of a key of AES-256-SIV."""


class NotOpened(Exception):
    """A value was not sealed with any of the secrets; the text gives the known details."""


def read_secrets(path: Path) -> tuple[str, ...]:
    """Return the secrets in a file, one a line; the first is used for sealing.

    Raises:
        BrokerError: the file cannot be read, has no secret, or a short one.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise BrokerError(f"the cluster's secret cannot be read from {path}: {reason}") from None
    found = tuple(filter(None, (line.strip() for line in lines)))
    if not found or min(map(len, found)) < LEAST:
        raise BrokerError(f"a secret in {path} has fewer than {LEAST} characters: `openssl rand -hex 32` makes one")
    return found


class Seal:
    """Seals and opens values.

    Args:
        secrets: secrets; the first one seals.

    Attributes:
        identity: identity of the cluster; :func:`is_of_any_identity` lists the keys sealed without it.

    Raises:
        BrokerError: the package ``cryptography`` is missing, or has no AES-SIV.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self.identity = ""
        self._ciphers = [_cipher(secret) for secret in secrets]

    def seal(self, key: str, value: bytes) -> bytes:
        """Return the sealed form of a value."""
        return SEALED + b64encode(self._ciphers[0].encrypt(value, self._bound(key)))

    def open(self, key: str, sealed: bytes) -> bytes:
        """Return the plain value of a sealed value.

        Raises:
            NotOpened: the value was not sealed with any of the secrets, for this key, in this cluster.
        """
        from cryptography.exceptions import InvalidTag

        if not sealed.startswith(SEALED):
            raise NotOpened(f"'{key}' is not sealed: it was put without the secret of --cluster-secret-file")
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(b64decode(sealed[len(SEALED) :], validate=True), self._bound(key))
            except (InvalidTag, ValueError):
                continue
        raise NotOpened(f"'{key}' was sealed with another secret than that of --cluster-secret-file, or changed since")

    def _bound(self, key: str) -> list[bytes]:
        return [key.encode(), b"" if is_of_any_identity(key) else self.identity.encode()]


def _cipher(secret: str) -> AESSIV:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise BrokerError("a sealed cluster needs the package cryptography: pip install 'jumpmq[cluster]'") from None
    try:
        return AESSIV(HKDF(SHA256(), KEY, None, b"jumpmq etcd").derive(secret.encode()))
    except UnsupportedAlgorithm:
        raise BrokerError("a sealed cluster needs AES-SIV, which OpenSSL has from 3.0 on") from None
