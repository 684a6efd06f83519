"""OAuth 2 tokens as logins: JSON Web Tokens, validated like RabbitMQ 3.10's ``rabbitmq_auth_backend_oauth2``.

A valid token is signed by a known key, issued for this broker (its audience names the resource server), and not
expired. The user is the token's ``client_id``, or ``sub`` without a ``client_id``.

Scopes begin with the resource server's id and a full stop. After this prefix, ``read:VHOST/NAME/KEY`` allows reading
from matching resources; ``write`` and ``configure`` likewise. In each part ``*`` matches any text, and parts may be
percent-encoded. KEY applies to routing keys at topic exchanges; without KEY, no routing key is allowed there.
``tag:TAG`` grants a tag.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from jumpmq.broker.errors import BrokerError
from jumpmq.broker.security.accounts import Principal
from jumpmq.topology.users import Operation, Permissions, TopicPermissions, User

if TYPE_CHECKING:
    pass

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
SYMMETRIC = ["HS256", "HS384", "HS512"]
"""Signature algorithms for a shared key."""

FETCH_TIMEOUT = 10
"""Timeout of a key server, in seconds."""

OPERATIONS = ("configure", "write", "read")


class InvalidToken(Exception):
    """The token is invalid; the text has the reason, for the log."""


class Tokens:
    """Validates tokens.

    Args:
        resource: id of this resource server: the audience, and the prefix of scopes.
        keys: a file with a JSON Web Key Set or one public key in PEM, or the ``https`` URL of a key set.

    Raises:
        BrokerError: the file is unreadable or has no keys.
    """

    def __init__(self, resource: str, keys: str) -> None:
        import jwt  # here, to save memory in a broker without tokens

        self._jwt = jwt
        self._resource = resource
        self._url = jwt.PyJWKClient(keys, timeout=FETCH_TIMEOUT) if keys.startswith(("https://", "http://")) else None
        self._keys: list[tuple[str | None, Any, list[str]]] = []
        if self._url is None:
            try:
                self._keys = _read_keys(Path(keys).read_text())
            except OSError as error:
                raise BrokerError(f"cannot read keys of tokens from {keys}: {error.strerror}") from None
            except (ValueError, jwt.PyJWTError) as error:
                raise BrokerError(f"{keys} has no keys of tokens: {error}") from None

    async def user(self, token: str) -> Principal:
        """Return the user of a token.

        Raises:
            InvalidToken: the token is invalid.
        """
        try:
            key, algorithms = await self._key(token)
            claims = self._jwt.decode(
                token, key, algorithms, audience=self._resource, options={"verify_iat": False, "verify_sub": False}
            )
        except (self._jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidToken(str(error)) from None
        name = claims.get("client_id") or claims.get("sub")
        if not isinstance(name, str):
            raise InvalidToken("the token has neither client_id nor sub")
        return Principal(name, self._granted(name, claims.get("scope", ())), claims.get("exp"))

    async def _key(self, token: str) -> tuple[Any, list[str]]:
        if self._url is not None:
            found = await asyncio.to_thread(self._url.get_signing_key_from_jwt, token)
            return found.key, ALGORITHMS
        wanted = self._jwt.get_unverified_header(token).get("kid")
        for name, key, algorithms in self._keys:
            if wanted is None or name is None or name == wanted:
                return key, algorithms
        raise InvalidToken(f"there is no key {wanted!r}")

    def _granted(self, name: str, scope: object) -> User:
        words = scope.split() if isinstance(scope, str) else scope
        prefix = f"{self._resource}."
        found = words if isinstance(words, list | tuple) else ()
        scopes = [word.removeprefix(prefix) for word in found if isinstance(word, str) and word.startswith(prefix)]
        return user_of(name, scopes)


def looks_like_token(password: str) -> bool:
    """Return True if a password has the form of a JSON Web Token."""
    return password.startswith("ey") and password.count(".") == 2


def user_of(name: str, scopes: list[str]) -> User:
    """Return the permissions granted to the bearer of a token by scopes, without prefix."""
    tags = tuple(scope.removeprefix("tag:") for scope in scopes if scope.startswith("tag:"))
    grants = [grant for scope in scopes if (grant := Grant.of(scope)) is not None]
    return User(name, "", tags, _ByVirtualHost(grants), _ByExchange(grants))


def to_values(user: Principal) -> tuple[str, list[str] | None, float | None]:
    """Return a user as plain values, for a different process of the broker: name, scopes of a token, and expiry of the
    token.
    """
    granted = user.granted
    if granted is None:
        return user.name, None, user.until
    assert isinstance(granted.permissions, _ByVirtualHost)
    scopes = [*(f"tag:{tag}" for tag in granted.tags), *map(str, granted.permissions.grants)]
    return user.name, scopes, user.until


def from_values(name: str, scopes: list[str] | None, until: float | None) -> Principal:
    """Return a user from the values of :func:`to_values`."""
    return Principal(name, None if scopes is None else user_of(name, scopes), until)


def _read_keys(text: str) -> list[tuple[str | None, Any, list[str]]]:
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if text.lstrip().startswith("-----BEGIN"):
        return [(None, load_pem_public_key(text.encode()), ALGORITHMS)]
    found = jwt.PyJWKSet.from_dict(json.loads(text)).keys
    return [(key.key_id, key.key, SYMMETRIC if key.key_type == "oct" else ALGORITHMS) for key in found]


# --- scopes ---


@dataclass(frozen=True)
class Grant:
    """A scope: an operation on resources matching three patterns.

    Attributes:
        key: pattern of routing keys at topic exchanges; None allows no routing key there.
    """

    operation: Operation
    vhost: str
    name: str
    key: str | None = None

    @classmethod
    def of(cls, scope: str) -> "Grant | None":
        """Return the grant of a scope without prefix; None for any other text."""
        operation, colon, place = scope.partition(":")
        parts = place.split("/")
        if operation not in OPERATIONS or not colon or not 2 <= len(parts) <= 3 or not all(parts):
            return None
        return cls(operation, *parts)  # type: ignore[arg-type]

    def __str__(self) -> str:
        key = "" if self.key is None else f"/{self.key}"
        return f"{self.operation}:{self.vhost}/{self.name}{key}"

    def covers(self, vhost: str) -> bool:
        """Return True if the grant covers the virtual host."""
        return matches(self.vhost, vhost)


def matches(wildcard: str, name: str) -> bool:
    """Return True if a pattern, with ``*`` as a wildcard, matches a name; in linear time for every pattern."""
    first, *parts = [unquote(part) for part in wildcard.split("*")]
    if not parts:
        return first == name
    place, end = len(first), len(name) - len(parts[-1])
    if not name.startswith(first) or not name.endswith(parts[-1]) or end < place:
        return False
    for part in parts[:-1]:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


class GrantedPermissions(Permissions):
    """Permissions by grants in a virtual host."""

    __slots__ = ("_grants",)

    _grants: list[Grant]

    def __init__(self, grants: list[Grant]) -> None:
        super().__init__("", "", "")
        object.__setattr__(self, "_grants", grants)

    def allows(self, operation: Operation, name: str) -> bool:
        name = name or "amq.default"
        return any(grant.operation == operation and matches(grant.name, name) for grant in self._grants)

    def allows_any(self, operation: Operation) -> bool:
        return any(grant.operation == operation for grant in self._grants)


class GrantedTopics(TopicPermissions):
    """Routing keys permitted by grants at a topic exchange."""

    __slots__ = ("_grants",)

    _grants: list[Grant]

    def __init__(self, grants: list[Grant]) -> None:
        super().__init__("", "")
        object.__setattr__(self, "_grants", grants)

    def allows(self, operation: Literal["write", "read"], key: str, user: str, vhost: str) -> bool:
        keys = [grant.key for grant in self._grants if grant.operation == operation]
        return any(matches(one, key) for one in keys if one is not None)


class _ByVirtualHost(dict[str, Permissions]):
    """The permissions of grants, by virtual host, for every virtual host covered by a grant."""

    def __init__(self, grants: list[Grant]) -> None:
        super().__init__()
        self.grants = grants

    def __contains__(self, vhost: object) -> bool:
        return isinstance(vhost, str) and any(grant.covers(vhost) for grant in self.grants)

    def get(self, vhost: str, default: Any = None) -> Any:
        grants = [grant for grant in self.grants if grant.covers(vhost)]
        return GrantedPermissions(grants) if grants else default


class _ByExchange(dict[tuple[str, str], TopicPermissions]):
    """The topic permissions of grants by virtual host and exchange."""

    def __init__(self, grants: list[Grant]) -> None:
        super().__init__()
        self._grants = grants

    def get(self, place: tuple[str, str], default: Any = None) -> Any:
        vhost, exchange = place
        return GrantedTopics([one for one in self._grants if one.covers(vhost) and matches(one.name, exchange)])
