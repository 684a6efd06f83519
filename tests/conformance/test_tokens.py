"""OAuth 2 tokens: a token gives the same rights on RabbitMQ, with its plugin, and on JumpMQ."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from tests.conformance.operator import Operator
from tests.wire import Closed, Hangup, WireChannel, closing, login

from jumpmq.testing import HOST, BrokerProcess, JumpMQ, RabbitMQ

KEY = rsa.generate_private_key(65537, 2048)
STRANGER = rsa.generate_private_key(65537, 2048)


class WithTokens(RabbitMQ):
    """RabbitMQ with logins by token and by password."""

    plugins = (*RabbitMQ.plugins, "rabbitmq_auth_backend_oauth2")

    def _configure(self) -> None:
        super()._configure()
        pem = self.directory / "key.pem"
        pem.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with (self.directory / "rabbitmq.conf").open("a") as file:
            file.write(
                "auth_backends.1 = rabbit_auth_backend_oauth2\n"
                "auth_backends.2 = internal\n"
                "auth_oauth2.resource_server_id = rabbit\n"
                f"auth_oauth2.signing_keys.k1 = {self.installation.seen(self.directory) / pem.name}\n"
                "auth_oauth2.default_key = k1\n"
            )


@pytest.fixture(scope="module", params=["rabbitmq", "jumpmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a virtual host `other`, exchanges and queues."""
    with ExitStack() as stack:
        if request.param == "rabbitmq":
            if not RabbitMQ.available():
                pytest.skip(RabbitMQ.available().reason)
            running: BrokerProcess = stack.enter_context(WithTokens())
        else:
            keys = tmp_path_factory.mktemp("keys") / "keys.json"
            public: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(KEY.public_key()))
            keys.write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig"}]}))
            running = stack.enter_context(JumpMQ(arguments=("--oauth-resource", "rabbit", "--oauth-keys", str(keys))))
        operator = Operator(running)
        operator.ask("PUT", "vhosts", "other", json={})
        for vhost in ("/", "other"):
            operator.ask("PUT", "permissions", vhost, "guest", json=dict.fromkeys(("configure", "write", "read"), ".*"))
            for name in ("orders", "a/b"):
                operator.ask("PUT", "queues", vhost, name, json={"durable": True})
        yield running


def token(*scopes: str, key: Any = KEY, **claims: Any) -> str:
    made = {"client_id": "billing", "aud": ["rabbit"], "scope": list(scopes), "exp": int(time.time()) + 600, **claims}
    known = {name: value for name, value in made.items() if value is not None}
    return jwt.encode(known, key, "RS256", headers={"kid": "k1"})


def may(broker: BrokerProcess, password: str, vhost: str = "/") -> str:
    """Permissions of a token's bearer over AMQP in a virtual host, a letter each; `-` without a login.

    ``c`` declares the queue `orders`, ``w`` publishes to `amq.direct`, ``r`` gets from `orders`, ``t`` publishes to
    `amq.topic` with the routing key `a.b`, ``b`` binds `orders` to it by that key, ``/`` gets from `a/b`.
    """
    try:
        connection = login(broker.port, user="", password=password, vhost=vhost)
    except (Closed, Hangup):
        return "-"

    def publish(channel: WireChannel, exchange: str, key: str) -> None:
        channel.confirm_select()
        channel.publish(exchange, key, b"")
        channel.next()

    acts: dict[str, Callable[[WireChannel], object]] = {
        "c": lambda channel: channel.queue("orders", exclusive=False, durable=True),
        "w": lambda channel: publish(channel, "amq.direct", "k"),
        "r": lambda channel: channel.get("orders"),
        "t": lambda channel: publish(channel, "amq.topic", "a.b"),
        "b": lambda channel: channel.bind("orders", "amq.topic", "a.b"),
        "/": lambda channel: channel.get("a/b"),
    }
    done = ""
    with closing(connection):
        for letter, act in acts.items():
            with suppress(Closed):
                act(connection.channel())
                done += letter
    return done


class Case(NamedTuple):
    scopes: tuple[str, ...]
    here: str
    there: str = "-"


ALL = ("rabbit.configure:*/*", "rabbit.write:*/*", "rabbit.read:*/*")


@pytest.mark.parametrize(
    "case",
    [
        Case(ALL, "cwr/", "cwr/"),
        Case(("rabbit.configure:*/*",), "c", "c"),
        Case(("rabbit.write:%2F/*",), "w"),
        Case(("rabbit.read:other/*",), "-", "r/"),
        Case(("rabbit.read:*/ord*",), "r", "r"),
        Case(("rabbit.read:*/*ers",), "r", "r"),
        Case(("rabbit.read:*/o*e*s",), "r", "r"),
        Case(("rabbit.read:*/a%2Fb",), "/", "/"),
        Case(("rabbit.read:*",), "-", "-"),
        Case(("rabbit.read:oth*",), "-", "-"),
        Case(("rabbit.write:*/*/a.*",), "wt", "wt"),
        Case(("rabbit.write:*/*/b.*",), "w", "w"),
        Case(("rabbit.write:*/amq.topic/a.b", "rabbit.write:*/amq.direct"), "wt", "wt"),
        Case(("rabbit.write:*/*", "rabbit.read:*/*/a.b"), "wrb/", "wrb/"),
        Case(("rabbit.write:*/*", "rabbit.read:*/*/c.d"), "wr/", "wr/"),
        Case(("read:*/*", "other.read:*/*"), "-"),
        Case(("rabbit.own:*/*",), "-"),
        Case(("rabbit.tag:administrator",), "-"),
        Case((), "-"),
    ],
    ids=lambda case: " ".join(case.scopes) or "none",
)
def test_scopes(broker: BrokerProcess, case: Case) -> None:
    bearer = token(*case.scopes)
    assert (may(broker, bearer), may(broker, bearer, "other")) == (case.here, case.there)


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({}, "cwr/"),
        ({"aud": "rabbit"}, "cwr/"),
        ({"aud": ["others", "rabbit"]}, "cwr/"),
        ({"aud": ["others"]}, "-"),
        ({"aud": None}, "-"),
        ({"key": STRANGER}, "-"),
        ({"exp": int(time.time()) - 10}, "-"),
        ({"exp": None}, "cwr/"),
        ({"scope": " ".join(ALL)}, "cwr/"),
        ({"client_id": None, "sub": "somebody"}, "cwr/"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_claims(broker: BrokerProcess, wrong: dict[str, Any], allowed: str) -> None:
    assert may(broker, token(*ALL, **wrong)) == allowed


@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring", "administrator", "other", None])
def test_tags(broker: BrokerProcess, tag: str | None) -> None:
    bearer = token(*ALL, *([f"rabbit.tag:{tag}"] if tag else []))

    def status(path: str) -> int:
        headers = {"Authorization": f"Bearer {bearer}"}
        return requests.get(f"http://{HOST}:{broker.http_port}/api/{path}", headers=headers, timeout=30).status_code

    found = [status(path) for path in ("whoami", "parameters", "nodes", "users")]
    expected = {
        "management": [200, 401, 401, 401],
        "policymaker": [200, 200, 401, 401],
        "monitoring": [200, 401, 200, 401],
        "administrator": [200, 200, 200, 200],
    }
    assert found == expected.get(tag or "", [401, 401, 401, 401])
