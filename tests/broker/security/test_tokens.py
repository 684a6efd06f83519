"""OAuth 2 tokens as logins, over AMQP and HTTP: issuers, permissions, and expiry."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pika
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.broker.security.tokens import ALL, KEY_SET, token
from tests.waiting import punctually

import jumpmq
from jumpmq.broker.security.tokens import Grant, matches

STRANGER = rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jumpmq.RunningBroker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(json.dumps(KEY_SET))
    with jumpmq.running(oauth_resource="rabbit", oauth_keys=str(keys)) as running:
        yield running


def connect(broker: jumpmq.RunningBroker, password: str, user: str = "") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials))


def ask(broker: jumpmq.RunningBroker, path: str, bearer: str, method: str = "GET", **options: Any) -> requests.Response:
    url = f"http://127.0.0.1:{broker.http_port}/api/{path}"
    return requests.request(method, url, headers={"Authorization": f"Bearer {bearer}"}, **options)


def test_scopes_are_permissions(broker: jumpmq.RunningBroker) -> None:
    scopes = (
        "rabbit.configure:%2F/billing-*",
        "rabbit.write:%2F/billing-*",
        "rabbit.write:%2F/amq.default",
        "other.read:*/*",
    )
    with connect(broker, token(*scopes, "other.read:*/*")) as connection:
        channel = connection.channel()
        channel.queue_declare("billing-in")
        channel.confirm_delivery()
        channel.basic_publish("", "billing-in", b"x", mandatory=True)
        with pytest.raises(
            pika.exceptions.ChannelClosedByBroker, match="billing-in' in vhost '/' refused for user 'billing'"
        ):
            channel.basic_get("billing-in")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            connection.channel().queue_declare("other")


def test_topics(broker: jumpmq.RunningBroker) -> None:
    scopes = ("rabbit.write:*/amq.topic/billing.*", "rabbit.configure:*/*")
    with connect(broker, token(*scopes)) as connection:
        channel = connection.channel()
        channel.basic_publish("amq.topic", "billing.paid", b"")
        channel.basic_publish("amq.topic", "shipping.sent", b"")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to topic 'shipping\.sent'"):
            channel.queue_declare("any")


@pytest.mark.parametrize(
    "wrong",
    [
        token(*ALL, key=STRANGER),
        token(*ALL, aud=["others"]),
        token(*ALL, aud=None),
        token(*ALL, exp=time.time() - 1),
        token(*ALL, client_id=None),
        token(*ALL, kid="k2"),
        token(*ALL, key="secret" * 8, algorithm="HS256"),
        jwt.encode({"client_id": "x", "aud": "rabbit"}, "", "none"),
        token(*ALL)[:-4] + "AAAA",
        "ey.ey.ey",
    ],
)
def test_what_is_no_login(broker: jumpmq.RunningBroker, wrong: str) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker, wrong)
    assert ask(broker, "whoami", wrong).status_code == 401


def test_a_token_without_scopes_opens_no_virtual_host(broker: jumpmq.RunningBroker) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker, token())


def test_tags_and_bearer_tokens(broker: jumpmq.RunningBroker) -> None:
    manager = token(*ALL, "rabbit.tag:monitoring", sub="someone", client_id=None)
    someone = {"name": "someone", "tags": ["monitoring"], "is_internal_user": False}
    assert ask(broker, "whoami", manager).json() == someone
    assert ask(broker, "nodes", manager).status_code == 200
    assert ask(broker, "users", manager).status_code == 401
    assert ask(broker, "queues/%2F/made", manager, "PUT", json={}).status_code == 201
    assert ask(broker, "queues", manager).status_code == 200
    assert ask(broker, "whoami", token(*ALL)).status_code == 401
    basic = requests.get(f"http://127.0.0.1:{broker.http_port}/api/whoami", auth=("any", manager))
    assert basic.json()["name"] == "someone"


def test_scopes_as_one_string(broker: jumpmq.RunningBroker) -> None:
    assert ask(broker, "whoami", token(scope=" ".join([*ALL, "rabbit.tag:management"]))).status_code == 200


def test_a_kept_user_of_the_same_name_gives_nothing(broker: jumpmq.RunningBroker) -> None:
    assert ask(broker, "whoami", token(client_id="guest")).status_code == 401
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker, token(client_id="guest"))


def test_passwords_are_logins_still(broker: jumpmq.RunningBroker) -> None:
    with connect(broker, "guest", "guest") as connection:
        connection.channel()


def test_an_expired_token_ends_the_connection(broker: jumpmq.RunningBroker) -> None:
    def trial() -> None:
        with pytest.raises(
            pika.exceptions.ConnectionClosedByBroker, match="credentials of user 'billing' have expired"
        ):
            connect(broker, token(*ALL, exp=time.time() + 2)).process_data_events(time_limit=60)

    punctually(2, trial)


@pytest.mark.slow
def test_a_new_token_goes_on(broker: jumpmq.RunningBroker) -> None:
    with connect(broker, token(*ALL, exp=time.time() + 3)) as connection:
        channel = connection.channel()
        connection.update_secret(token("rabbit.configure:*/kept"), "refresh")
        channel.queue_declare("kept")
        connection.process_data_events(time_limit=4)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("more")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="New secret was refused"):
            connection.update_secret(token(*ALL, client_id="another"), "refresh")


def test_keys_from_a_url_and_in_pem(tmp_path: Path) -> None:
    class KeySet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(KEY_SET).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), KeySet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with jumpmq.running(oauth_resource="rabbit", oauth_keys=f"http://127.0.0.1:{server.server_port}/") as broker:
            connect(broker, token(*ALL)).close()
        server.shutdown()
    curve = ec.generate_private_key(ec.SECP256R1())
    pem = tmp_path / "key.pem"
    pem.write_bytes(curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with jumpmq.running(oauth_resource="rabbit", oauth_keys=str(pem)) as broker:
        connect(broker, token(*ALL, key=curve, kid=None, algorithm="ES256")).close()


@pytest.mark.parametrize("keys", ["{none}", "{text}", None])
def test_keys_that_are_none(tmp_path: Path, keys: str | None) -> None:
    (tmp_path / "text").write_text("no keys")
    found = keys and keys.format(none=tmp_path / "none", text=tmp_path / "text")
    with pytest.raises(jumpmq.BrokerError, match="tokens"), jumpmq.running(oauth_resource="rabbit", oauth_keys=found):
        pass


@pytest.mark.parametrize(
    ("wildcard", "name", "found"),
    [
        *(("*", "", True), ("a*", "abc", True), ("a*c", "abc", True), ("a*c", "ac", True), ("a*c", "acb", False)),
        *(
            ("ab*bc", "abc", False),
            ("a*b*c", "axbxc", True),
            ("%2F", "/", True),
            ("%2A", "*", True),
            ("%2A", "x", False),
        ),
        *(
            ("a*" * 50, "a" * 200 + "b", True),
            ("a*" * 50 + "c", "a" * 200 + "b", False),
            ("", "", True),
            ("", "x", False),
        ),
    ],
)
def test_wildcards(wildcard: str, name: str, found: bool) -> None:
    assert matches(wildcard, name) is found


def test_what_is_no_scope_of_ours() -> None:
    assert [Grant.of(text) for text in ("read", "read:", "read:v", "read:a/b/c/d", "own:*/*", "read:/x", "")] == [
        None
    ] * 7
    assert Grant.of("read:v/n") == Grant("read", "v", "n", None)


def test_a_token_with_a_kept_users_name_is_not_that_user(broker: jumpmq.RunningBroker) -> None:
    administrator = ("guest", "guest")
    api = f"http://127.0.0.1:{broker.http_port}/api"
    user = {"password": "secret", "tags": "management"}
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    requests.put(f"{api}/users/billing", json=user, auth=administrator).raise_for_status()
    requests.put(f"{api}/permissions/%2F/billing", json=everything, auth=administrator).raise_for_status()
    limit = {"value": 1}
    requests.put(f"{api}/user-limits/billing/max-connections", json=limit, auth=administrator).raise_for_status()
    bearer = token(*ALL, "rabbit.tag:management")
    with connect(broker, "secret", "billing") as kept:
        kept.channel()
        assert ask(broker, "connections", bearer).json() == []
        assert ask(broker, "channels", bearer).json() == []
        (name,) = [one["name"] for one in requests.get(f"{api}/connections", auth=administrator).json()]
        for method in ("GET", "DELETE"):
            assert ask(broker, f"connections/{name}", bearer, method).status_code == 401
        ask(broker, "connections/username/billing", bearer, "DELETE")
        kept.process_data_events(0)
        assert kept.is_open
        with connect(broker, bearer) as of_token:  # the kept user has the one place of the limit
            of_token.channel()
            (shown,) = ask(broker, "connections", bearer).json()
            assert shown["user"] == "billing" and shown["name"] != name
    with connect(broker, bearer), connect(broker, "secret", "billing") as kept:
        assert kept.is_open
    requests.delete(f"{api}/users/billing", auth=administrator).raise_for_status()


def test_what_a_token_with_a_kept_users_name_makes_counts_apart(broker: jumpmq.RunningBroker) -> None:
    administrator, api = ("guest", "guest"), f"http://127.0.0.1:{broker.http_port}/api"
    user, everything = {"password": "secret", "tags": ""}, dict.fromkeys(("configure", "write", "read"), ".*")
    requests.put(f"{api}/users/counted", json=user, auth=administrator).raise_for_status()
    requests.put(f"{api}/permissions/%2F/counted", json=everything, auth=administrator).raise_for_status()
    for limit in ("queues", "bindings"):
        place = f"{api}/user-limits/counted/max-{limit}"
        requests.put(place, json={"value": 1}, auth=administrator).raise_for_status()
    for password, queue in ((token(*ALL, client_id="counted"), "of token"), ("secret", "of user")):
        with connect(broker, password, "counted") as connection:
            connection.channel().queue_declare(queue)
            connection.channel().queue_bind(queue, "amq.direct", "1")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"queue limit of user 'counted' \(1\)"):
                connection.channel().queue_declare(f"another {queue}")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"binding limit of user 'counted' \(1\)"):
                connection.channel().queue_bind(queue, "amq.direct", "2")
    requests.delete(f"{api}/users/counted", auth=administrator).raise_for_status()


@pytest.mark.several
def test_at_all_workers_a_token_allows_the_same(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(KEY_SET))
    settings: dict[str, Any] = {"oauth_resource": "rabbit", "oauth_keys": str(tmp_path / "keys.json")}
    bearer = token(*ALL, "rabbit.tag:impersonator", "rabbit.tag:administrator")
    with jumpmq.running(workers=2, **settings) as broker:
        for home in (1, 2):
            assert ask(broker, f"vhosts/{home}", bearer, "PUT", json={"home": home}).status_code == 201
            assert ask(broker, f"vhosts/{home}/permissions", bearer).json() == []
            where = pika.ConnectionParameters(
                "127.0.0.1", broker.port, str(home), credentials=pika.PlainCredentials("", bearer)
            )
            with pika.BlockingConnection(where) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("q")
                channel.basic_publish("", "q", b"theirs", pika.BasicProperties(user_id="another"))
            how = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
            answer = ask(broker, f"queues/{home}/q/get", bearer, "POST", json=how)
            assert [one["payload"] for one in answer.json()] == ["theirs"]
            assert ask(broker, f"queues/{home}/q/contents", token("rabbit.tag:management"), "DELETE").status_code == 401
