"""OAuth 2 tokens and signing keys."""

import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

KEY = rsa.generate_private_key(65537, 2048)

KEY_SET = {"keys": [{**json.loads(RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "k1", "use": "sig"}]}

ALL = ["rabbit.configure:*/*", "rabbit.write:*/*/*", "rabbit.read:*/*/*"]


def token(
    *scopes: str,
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | str = KEY,
    kid: str | None = "k1",
    algorithm: str = "RS256",
    **claims: object,
) -> str:
    made = {"client_id": "billing", "aud": ["rabbit"], "scope": list(scopes), "exp": time.time() + 600, **claims}
    known = {name: value for name, value in made.items() if value is not None}
    return jwt.encode(known, key, algorithm, headers={"kid": kid} if kid else {})
