"""Access of users to objects of other users, and of pages from other sites."""

import math
from collections.abc import Iterator
from typing import Any

import pika
import pytest
import requests
from pamqp.commands import Connection
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API
from tests.wire import PROTOCOL_HEADER, closing, dial

import jumpmq

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    with jumpmq.running() as running:
        administrator = API(running.http_url)
        for name in ("management", "monitoring"):
            administrator.request("PUT", "users", name, json={"password": "secret", "tags": name})
            everything = dict.fromkeys(("configure", "write", "read"), ".*")
            administrator.request("PUT", "permissions", "/", name, json=everything)
        yield running


def as_user(broker: jumpmq.RunningBroker, name: str) -> API:
    return API(broker.http_url.replace("guest:guest", f"{name}:secret"))


def connect(
    broker: jumpmq.RunningBroker, user: str = "guest", password: str = "guest", **parameters: Any
) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials, **parameters)
    )


@pytest.fixture
def guests_connection(broker: jumpmq.RunningBroker, api: API) -> Iterator[str]:
    """Name of another user's open connection."""
    with connect(broker) as opened:
        opened.channel()
        yield api.get("connections")[-1]["name"]


@pytest.mark.parametrize("user", ["management", "monitoring"])
def test_another_users_connection_is_not_closed(
    broker: jumpmq.RunningBroker, api: API, guests_connection: str, user: str
) -> None:
    refusal = as_user(broker, user).request("DELETE", "connections", guests_connection)
    assert (refusal.status_code, refusal.json()["error"]) == (401, "not_authorized")
    assert api.get("connections", guests_connection)["state"] == "running"


@pytest.mark.parametrize("user", ["management", "monitoring"])
def test_ones_own_connection_is_closed(broker: jumpmq.RunningBroker, user: str) -> None:
    opened = connect(broker, user, "secret")
    mine = as_user(broker, user)
    name = next(one["name"] for one in mine.get("connections") if one["user"] == user)
    assert mine.request("DELETE", "connections", name).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        opened.process_data_events(time_limit=60)


@pytest.fixture
def locked(broker: jumpmq.RunningBroker) -> Iterator[BlockingChannel]:
    """A queue that is exclusive to an open connection, with a message and a consumer."""
    with connect(broker) as opened:
        channel = opened.channel()
        channel.queue_declare("locked", exclusive=True)
        channel.confirm_delivery()
        channel.basic_publish("", "locked", b"mine")
        yield channel


@pytest.mark.parametrize(
    ("method", "parts", "body"),
    [
        ("POST", ("queues", "/", "locked", "get"), {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}),
        ("DELETE", ("queues", "/", "locked", "contents"), None),
        ("DELETE", ("queues", "/", "locked"), None),
        ("PUT", ("queues", "/", "locked"), {}),
        ("POST", ("bindings", "/", "e", "amq.direct", "q", "locked"), {"routing_key": "k"}),
        ("GET", ("queues", "/", "locked", "messages"), None),
        ("POST", ("readers", "/", "g", "reserve"), {"queues": {"locked": None}}),
    ],
)
def test_an_exclusive_queue_is_locked(
    api: API, locked: BlockingChannel, method: str, parts: tuple[str, ...], body: dict[str, Any] | None
) -> None:
    refusal = api.request(method, *parts, json=body)
    assert refusal.status_code == 400
    assert "cannot obtain exclusive access to locked queue 'locked' in vhost '/'" in refusal.json()["reason"]
    assert api.counts("locked") == (1, 0)


def test_consumers_of_others_are_seen_by_who_monitors(broker: jumpmq.RunningBroker, locked: BlockingChannel) -> None:
    locked.basic_consume("locked", lambda *delivery: None, consumer_tag="t")
    assert as_user(broker, "management").get("consumers") == []
    assert as_user(broker, "management").get("consumers", "/") == []
    assert [one["consumer_tag"] for one in as_user(broker, "monitoring").get("consumers")] == ["t"]


def test_listeners_are_seen_by_who_monitors(broker: jumpmq.RunningBroker) -> None:
    assert not {"listeners", "node"} & set(as_user(broker, "management").get("overview"))
    assert {"listeners", "node"} <= set(as_user(broker, "monitoring").get("overview"))


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_definitions_are_json(api: API, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    refusal = api.request("POST", "definitions", data=b'{"vhosts": [{"name": "evil"}]}', headers=headers)
    assert (refusal.status_code, refusal.json()["error"]) == (415, "unsupported_media_type")
    assert api.request("GET", "vhosts", "evil").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://["}]
    + [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")],
)
@pytest.mark.parametrize("path", ["/api/whoami", "/metrics"])
def test_pages_of_other_origins_get_nothing(api: API, headers: dict[str, str], path: str) -> None:
    refusal = api.session.get(api.address + path, headers=headers)
    assert (refusal.status_code, refusal.json()["error"]) == (403, "forbidden")


def test_pages_of_our_own_are_served(api: API) -> None:
    own = {"Origin": api.address, "Sec-Fetch-Site": "same-origin"}
    assert api.request("GET", "whoami", headers=own).status_code == 200


def test_floats_that_json_has_not_are_strings(broker: jumpmq.RunningBroker, api: API) -> None:
    strange: dict[str, Any] = {"nan": math.nan, "many": [math.inf, 1.5], "none": None}
    with closing(dial(broker.port)) as opened:
        opened.send(PROTOCOL_HEADER)
        opened.expect(Connection.Start)
        opened.send_method(0, Connection.StartOk(strange, "PLAIN", "\0guest\0guest", "en_US"))
        opened.expect(Connection.Tune)
        opened.send_method(0, Connection.TuneOk(2047, 131072, 0))
        opened.send_method(0, Connection.Open("/"))
        opened.expect(Connection.OpenOk)
        response = api.request("GET", "connections")
    assert "NaN" not in response.text
    shown = next(one["client_properties"] for one in response.json() if "nan" in one["client_properties"])
    assert shown == {"nan": "nan", "many": ["inf", 1.5], "none": None}


SLASHED = ["/api/overview/", "/api/queues/", "/api/vhosts/%2F/", "/metrics/", "/api/definitions/"]


@pytest.mark.parametrize("path", SLASHED)
def test_a_slash_at_the_end_means_nothing(api: API, path: str) -> None:
    assert api.session.get(api.address + path).status_code == 200


def test_nothing_is_said_without_a_password(broker: jumpmq.RunningBroker) -> None:
    for path in ("/api/overview", "/api/none", "/metrics", "/metrics/none"):
        assert requests.get(f"http://127.0.0.1:{broker.http_port}{path}").status_code == 401
    for path in ("/index.html", "/metricsx", "//api/overview"):
        assert requests.get(f"http://127.0.0.1:{broker.http_port}{path}").status_code == 404


def asks_as_a_browser(broker: jumpmq.RunningBroker, host: str, **headers: str) -> int:
    url = f"http://127.0.0.1:{broker.http_port}/api/overview"
    return requests.get(url, auth=("guest", "guest"), headers={"Host": host, **headers}, timeout=60).status_code


@pytest.mark.parametrize("name", ["rebound.example", "127.0.0.1.rebound.example", "[::1", ""])
def test_a_page_whose_name_leads_here_is_not_taken_for_ours(broker: jumpmq.RunningBroker, name: str) -> None:
    host = f"{name}:{broker.http_port}"
    sent = (
        {"Origin": f"http://{host}"},
        {"Referer": f"http://{host}/"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Accept-Language": ""},  # the other headers are absent from a page's GET over plain HTTP
    )
    for headers in sent:
        assert asks_as_a_browser(broker, host, **headers) == 403, headers
    sent_by_page = {"Host": host, "X-JumpMQ-Page": "1", "Origin": f"http://{host}"}
    session, guest = f"http://127.0.0.1:{broker.http_port}/session", {"username": "guest", "password": "guest"}
    answered = requests.post(session, json=guest, headers=sent_by_page, timeout=60)
    assert answered.status_code == 403


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.2", "[::1]"])
def test_pages_of_this_machines_own_names_are_ours(broker: jumpmq.RunningBroker, name: str) -> None:
    host = f"{name}:{broker.http_port}"
    assert asks_as_a_browser(broker, host, Origin=f"http://{host}") == 200


def test_names_that_a_proxy_passes_on_can_be_added() -> None:
    with jumpmq.running(http_names="mq.example, other.example") as running:
        assert asks_as_a_browser(running, "mq.example", Origin="http://mq.example") == 200
        assert asks_as_a_browser(running, "else.example", Origin="http://else.example") == 403


def test_what_is_no_browser_may_use_any_name(broker: jumpmq.RunningBroker) -> None:
    assert asks_as_a_browser(broker, "mq.internal") == 200


def test_a_policymaker_does_not_do_an_administrators_business_by_parameters(
    broker: jumpmq.RunningBroker, api: API
) -> None:
    api.request("PUT", "users", "planner", json={"password": "secret", "tags": "policymaker"})
    api.request("PUT", "permissions", "/", "planner", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    planner, policy = (
        as_user(broker, "planner"),
        {"pattern": "^x$", "definition": {"max-length": 1}, "apply-to": "queues"},
    )
    places = {
        ("parameters", "vhost-limits", "/", "limits"): {"max-queues": 0},
        ("parameters", "operator_policy", "/", "strict"): policy,
        ("global-parameters", "cluster_name"): "mine",
    }
    for place, value in places.items():
        assert planner.request("PUT", *place, json={"value": value}).status_code == 401, place
        assert api.request("PUT", *place, json={"value": value}).status_code in (201, 204), place
        assert planner.request("DELETE", *place).status_code == 401, place
        assert api.request("DELETE", *place).status_code == 204, place
    assert planner.request("PUT", "global-parameters", "note", json={"value": 1}).status_code == 201
