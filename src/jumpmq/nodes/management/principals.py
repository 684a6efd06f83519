"""Principal of a request, passed between homes: the home of the user's login sends the principal in a header."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.tokens import from_values, to_values

HEADER = b"jumpmq-user"


def written(principal: Principal) -> bytes:
    """Encode a principal as the value of a header."""
    return b64encode(json.dumps(to_values(principal)).encode())


def read(value: str) -> Principal:
    """Decode a value of :func:`written`."""
    return from_values(*json.loads(b64decode(value)))
