"""Users, tags and permissions, as enforced by the management port."""

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pika
import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish

from jumpmq import RunningBroker

Ask = Callable[..., requests.Response]
"""Sends a request: the method, the path, and options of ``requests``."""


class Login(Protocol):
    def __call__(self, tag: str, permissions: Sequence[str] | None = (".*", ".*", ".*")) -> Ask: ...


@pytest.fixture
def login(api: API) -> Login:
    """Add a user with a tag and permissions in ``/``. Return a function that sends requests as that user."""

    def add(tag: str, permissions: Sequence[str] | None = (".*", ".*", ".*")) -> Ask:
        name = tag or "plain"
        assert api.request("PUT", "users", name, json={"password": "secret", "tags": tag}).status_code == 201
        if permissions:
            body = dict(zip(("configure", "write", "read"), permissions, strict=True))
            assert api.request("PUT", "permissions", "/", name, json=body).status_code == 201
        session = requests.Session()
        session.auth = (name, "secret")
        return lambda method, path, **options: session.request(method, f"{api.address}{path}", timeout=30, **options)

    return add


def test_a_user_is_added_changed_and_deleted(api: API) -> None:
    assert api.request("PUT", "users", "a/b", json={"password": "x", "tags": "monitoring,other"}).status_code == 201
    assert api.get("users", "a/b")["tags"] == ["monitoring", "other"]
    assert api.get("users", "a/b")["password_hash"].startswith("$argon2id$")
    assert api.request("PUT", "users", "a/b", json={"password": "y", "tags": ["management"]}).status_code == 204
    whoami = requests.get(f"{api.address}/api/whoami", auth=("a/b", "y"), timeout=30)
    assert whoami.json() == {"name": "a/b", "tags": ["management"], "is_internal_user": True}
    assert requests.get(f"{api.address}/api/whoami", auth=("a/b", "x"), timeout=30).status_code == 401
    assert [user["name"] for user in api.get("users", "without-permissions")] == ["a/b"]
    assert api.request("DELETE", "users", "a/b").status_code == 204
    assert api.request("DELETE", "users", "a/b").status_code == 404
    assert requests.get(f"{api.address}/api/whoami", auth=("a/b", "y"), timeout=30).status_code == 401


def test_a_user_without_a_password_cannot_log_in(api: API) -> None:
    api.request("PUT", "users", "locked", json={"tags": "administrator"})
    assert requests.get(f"{api.address}/api/whoami", auth=("locked", ""), timeout=30).status_code == 401


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_hashes_of_rabbitmq_are_verified(api: API, broker: RunningBroker, algorithm: str) -> None:
    salt = b"\x90\x8d\xc6\x0a"
    text = base64.b64encode(salt + hashlib.new(algorithm, salt + b"test12").digest()).decode()
    body = {"password_hash": text, "hashing_algorithm": f"rabbit_password_hashing_{algorithm}", "tags": "management"}
    assert api.request("PUT", "users", "old", json=body).status_code == 201
    api.request("PUT", "permissions", "/", "old", json={"configure": "", "write": "", "read": ""})
    assert api.get("users", "old")["password_hash"] == text
    assert requests.get(f"{api.address}/api/whoami", auth=("old", "test12"), timeout=30).status_code == 200
    assert requests.get(f"{api.address}/api/whoami", auth=("old", "test13"), timeout=30).status_code == 401
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=pika.PlainCredentials("old", "test12"))
    pika.BlockingConnection(parameters).close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "x"}, "key 'tags' is missing"),
        ({"password": 1, "tags": ""}, "'password' must be a string, not 1"),
        ({"password": "x", "tags": [1]}, "'tags' must be a list of strings, or one string with commas, not [1]"),
        ({"password_hash": "zz", "tags": ""}, "password hash 'zz' is not base64"),
        ({"password_hash": "enp6", "tags": ""}, "is not one of rabbit_password_hashing_sha256"),
        (
            {"password_hash": "enp6", "hashing_algorithm": "rabbit_password_hashing_md5", "tags": ""},
            "is not known here",
        ),
        ({"password": "x", "tags": "", "colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_wrong_user_is_refused(api: API, body: dict[str, Any], reason: str) -> None:
    response = api.request("PUT", "users", "u", json=body)
    assert response.status_code == 400
    assert reason in response.json()["reason"]
    assert api.request("GET", "users", "u").status_code == 404


@pytest.mark.parametrize(
    ("tag", "path", "status", "reason"),
    [
        ("", "/api/whoami", 401, "Not management user"),
        ("", "/metrics", 401, "Not management user"),
        ("management", "/api/nodes", 401, "Not monitor user"),
        ("management", "/metrics", 401, "Not monitor user"),
        ("management", "/api/users", 401, "Not administrator user"),
        ("management", "/api/parameters", 401, "User not authorised to access object"),
        ("monitoring", "/api/definitions", 401, "Not administrator user"),
        ("monitoring", "/api/permissions", 401, "Not administrator user"),
        ("policymaker", "/api/parameters", 200, None),
        ("monitoring", "/api/nodes", 200, None),
        ("monitoring", "/metrics", 200, None),
        ("management", "/api/queues/%2F", 200, None),
        ("administrator", "/api/users", 200, None),
    ],
)
def test_tags_say_what_a_user_may_see(login: Login, tag: str, path: str, status: int, reason: str | None) -> None:
    response = login(tag)("GET", path)
    assert response.status_code == status
    if reason is not None:
        assert response.json() == {"error": "not_authorized", "reason": reason}


def test_virtual_hosts_without_permissions_are_hidden(api: API, login: Login) -> None:
    api.request("PUT", "vhosts", "other")
    api.request("PUT", "queues", "other", "q", json={})
    ask = login("management")
    assert ask("GET", "/api/queues").json() == []
    assert [vhost["name"] for vhost in ask("GET", "/api/vhosts").json()] == ["/"]
    assert ask("GET", "/api/queues/other").json() == {
        "error": "not_authorized",
        "reason": "User not authorised to access virtual host",
    }
    assert len(api.get("queues")) == 1


def test_permissions_hold_over_http_for_administrators_too(api: API, login: Login) -> None:
    ask = login("administrator", ("^mine", "^mine", "^mine"))
    assert ask("PUT", "/api/queues/%2F/mine", json={}).status_code == 201
    refused = ask("PUT", "/api/queues/%2F/yours", json={})
    assert (refused.status_code, refused.json()["reason"]) == (
        401,
        "configure access to queue 'yours' in vhost '/' refused for user 'administrator'",
    )
    assert ask("DELETE", "/api/queues/%2F/mine/contents").status_code == 204
    api.request("PUT", "queues", "/", "yours", json={})
    get = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for method, path, body in (
        ("DELETE", "/api/queues/%2F/yours", None),
        ("DELETE", "/api/queues/%2F/yours/contents", None),
        ("POST", "/api/queues/%2F/yours/get", get),
        ("GET", "/api/queues/%2F/yours/messages", None),
        ("POST", "/api/readers/%2F/g/reserve", {"queues": {"yours": None}}),
        ("POST", "/api/bindings/%2F/e/amq.direct/q/yours", {"routing_key": "k"}),
    ):
        response = ask(method, path, json=body)
        assert response.status_code == 401, (path, response.text)
    assert [queue["name"] for queue in api.get("queues")] == ["mine", "yours"]


def test_a_group_of_readers_is_its_users_and_for_those_who_may_read_its_queues(
    api: API, login: Login, channel: BlockingChannel
) -> None:
    api.request("PUT", "queues", "/", "yours", json={})
    publish(channel, "yours", [b"1", b"2", b"3"])
    reserved = api.post("readers", "/", "g", "reserve", body={"queues": {"yours": None}, "max_messages": 2})
    assert reserved["queues"]["yours"]["offset"] == 1
    ask = login("management", ("^mine", "^mine", "^mine"))
    refused = ask("POST", "/api/readers/%2F/g/commit", json={"queues": {"yours": 1}})
    assert refused.status_code == 401
    assert refused.json()["reason"].startswith("read access to queue 'yours' in vhost '/' refused")
    for method, path, status in (("POST", "/api/readers/%2F/g/renew", 204), ("DELETE", "/api/readers/%2F/g", 404)):
        assert ask(method, path, json={}).status_code == status  # the user's own group of this name is missing
    assert ask("GET", "/api/readers/%2F/g").json() == {"queues": {}}
    assert api.counts("yours") == (1, 2)
    beyond = api.request("POST", "readers", "/", "g", "commit", json={"queues": {"yours": 1000}})
    assert (beyond.status_code, "no reservation 1000 of group 'g'" in beyond.json()["reason"]) == (400, True)


def test_connections_of_others_are_hidden(api: API, login: Login, channel: BlockingChannel) -> None:
    assert login("management")("GET", "/api/connections").json() == []
    (shown,) = login("monitoring")("GET", "/api/connections").json()
    assert shown["user"] == "guest"


def test_a_right_password_passes_after_many_wrong_ones(api: API) -> None:
    address = f"{api.address}/api/whoami"
    api.request("PUT", "users", "alice", json={"password": "right", "tags": "management"})

    def status(password: str) -> int:
        return requests.get(address, auth=("alice", password), timeout=30).status_code

    with ThreadPoolExecutor(30) as threads:
        assert set(threads.map(status, ["wrong"] * 30)) == {401}
    assert status("right") == 200
    assert api.get("whoami")["name"] == "guest"


def test_a_user_has_one_what_if_at_a_time_and_all_have_two(
    api: API, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, channel: BlockingChannel
) -> None:
    entered, released = threading.Semaphore(0), threading.Event()

    def endless(*arguments: object) -> dict[str, Any]:
        entered.release()
        released.wait(60)
        return {}

    monkeypatch.setattr("jumpmq.topology.what_if.ring_outcomes", endless)
    channel.exchange_declare("asked", "x-consistent-hash")
    channel.queue_declare("q")
    users = ["one", "two", "three"]
    for name in users:
        api.request("PUT", "users", name, json={"password": name, "tags": "administrator"})
        rights = dict.fromkeys(("configure", "write", "read"), ".*")
        api.request("PUT", "permissions", "/", name, json=rights)
    change: dict[str, Any] = {"changes": [{"destination": "q", "weight": 1}]}
    place = f"{broker.http_url.replace('guest:guest@', '')}/api/exchanges/%2F/asked/ring/what-if"
    with ThreadPoolExecutor(16) as asking:
        asked = [asking.submit(requests.post, place, json=change, auth=("one", "one")) for _ in range(4)]
        try:
            assert entered.acquire(timeout=60)
            asked += [asking.submit(requests.post, place, json=change, auth=("two", "two")) for _ in range(4)]
            assert entered.acquire(timeout=60)
            asked += [asking.submit(requests.post, place, json=change, auth=("three", "three")) for _ in range(4)]
            body = {"password": "changed", "tags": ""}
            assert api.request("PUT", "users", "hurried", json=body).status_code == 201
            assert not entered.acquire(blocking=False)
            metrics = requests.get(f"{broker.http_url}/metrics").text
            found = re.search(r'jumpmq_memory_bytes{held_for="answers"} (.*)', metrics)
            assert found is not None
            held = float(found[1])
            assert 2 * 10_000_000 < held < 2 * 100_000_000
        finally:
            released.set()
        assert {one.result().status_code for one in asked} == {200}
    metrics = requests.get(f"{broker.http_url}/metrics").text
    assert 'jumpmq_memory_bytes{held_for="answers"} 0.0' in metrics
