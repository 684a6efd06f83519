"""Password hashes: argon2id for passwords set here, and RabbitMQ's salted hashes for imported users.

A hash is stored as one string that begins with its kind: ``$argon2id$...``, or RabbitMQ's name of the algorithm, a
``$`` and RabbitMQ's base64 of four octets of salt and the digest (RabbitMQ, "Credentials and Passwords"). The empty
hash matches no password: its user cannot log in by password.
"""

import base64
import binascii
import hashlib
import hmac

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

ARGON2 = "jumpmq_password_hashing_argon2id"
"""Algorithm name of local hashes in exported definitions."""

DEFAULT_FOREIGN = "rabbit_password_hashing_sha256"
DIGESTS = {DEFAULT_FOREIGN: "sha256", "rabbit_password_hashing_sha512": "sha512"}
SALT = 4

MAX_MEMORY = 1 << 18
MAX_TIME = 16
"""KiB of memory and rounds beyond which an imported hash is refused: its verification would delay all logins."""

# RFC 9106's recommendations take 64 MB and more for each login. These parameters, of OWASP's password storage cheat
# sheet, are those with the least time at 19 MB.
_hasher = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, with a random salt."""
    return _hasher.hash(password)


def verify_password(password_hash: str, password: str) -> bool:
    """Return True if the password matches the hash."""
    algorithm, _, encoded = password_hash.partition("$")
    if algorithm in DIGESTS:
        octets = base64.b64decode(encoded)
        digest = hashlib.new(DIGESTS[algorithm], octets[:SALT] + password.encode()).digest()
        return hmac.compare_digest(digest, octets[SALT:])
    try:
        return _hasher.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def foreign_hash(algorithm: str | None, text: str) -> str:
    """Return the stored form of a hash from a definitions file.

    Args:
        algorithm: name of the algorithm in the file; None is RabbitMQ's default.
        text: the hash in the file; "" matches no password.

    Raises:
        ValueError: unsupported hash, with the reason.
    """
    if not text:
        return ""
    if algorithm == ARGON2:
        _check_argon2(text)
        return text
    algorithm = algorithm or DEFAULT_FOREIGN
    if algorithm not in DIGESTS:
        known = ", ".join([*DIGESTS, ARGON2])
        raise ValueError(f"hashing algorithm '{algorithm}' is not known here, only {known}")
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"password hash '{text}' is not base64") from None
    if len(octets) != SALT + hashlib.new(DIGESTS[algorithm]).digest_size:
        raise ValueError(f"password hash '{text}' is not one of {algorithm}")
    return f"{algorithm}${text}"


def shown_hash(password_hash: str) -> tuple[str, str]:
    """Return algorithm and text for a definitions file: the inverse of :func:`foreign_hash`."""
    algorithm, _, text = password_hash.partition("$")
    return (algorithm, text) if algorithm in DIGESTS else (ARGON2, password_hash)


def _check_argon2(text: str) -> None:
    try:
        parameters = extract_parameters(text)
    except InvalidHashError:
        raise ValueError(f"password hash '{text}' is not one of {ARGON2}") from None
    if parameters.memory_cost > MAX_MEMORY or parameters.time_cost > MAX_TIME:
        raise ValueError(f"password hash '{text}' takes too long to verify")
