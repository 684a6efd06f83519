"""Wrong requests get a 4xx with a reason in JSON, without effect on other clients."""

import socket

import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish

from jumpmq import RunningBroker


@pytest.mark.parametrize(
    ("auth", "reason"),
    [
        (None, "Not_Authorized"),
        (("guest", "wrong"), "Login failed"),
        (("nobody", "guest"), "Login failed"),
        (("guest", ""), "Login failed"),
    ],
)
def test_a_known_user_is_needed(api: API, auth: tuple[str, str] | None, reason: str) -> None:
    response = requests.get(f"{api.address}/api/overview", auth=auth, timeout=30)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Basic realm="JumpMQ Management"'
    assert response.json() == {"error": "not_authorized", "reason": reason}


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Basic /////w==", "Bearer x", "x"])
def test_malformed_credentials_are_refused(api: API, header: str) -> None:
    response = requests.get(f"{api.address}/api/overview", headers={"Authorization": header}, timeout=30)
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "nothing", 404, "Not Found"),
        ("GET", "queues/%2F/nothing", 404, "no queue 'nothing' in vhost '/'"),
        ("GET", "queues/nowhere", 404, "no vhost 'nowhere'"),
        ("GET", "queues/%2F/%ff", 400, "the queue in the path is not UTF-8"),
        ("GET", "exchanges/%2F/nothing", 404, "no exchange 'nothing' in vhost '/'"),
        ("GET", "exchanges/%2F/nothing/bindings/source", 404, "no exchange 'nothing' in vhost '/'"),
        ("GET", "bindings/nowhere", 404, "no vhost 'nowhere'"),
        ("POST", "overview", 405, "POST is not possible here"),
        ("GET", "queues/%2F/nothing/messages", 404, "no queue 'nothing' in vhost '/'"),
        ("GET", "readers/%2F/g/queues/nothing/messages?upto=1", 404, "no queue 'nothing' in vhost '/'"),
        ("DELETE", "readers/%2F/g", 404, "no reader group 'g' in vhost '/'"),
    ],
)
def test_what_is_not_there_is_said(api: API, method: str, path: str, status: int, reason: str) -> None:
    response = api.session.request(method, f"{api.address}/api/{path}", timeout=30)
    assert (response.status_code, response.json()["reason"]) == (status, reason)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("queues/%2F/q/messages?from=-1", "'from' must be a whole number from 0 to 9223372036854775807, not '-1'"),
        ("queues/%2F/q/messages?to=1e3", "'to' must be a whole number from 0 to 9223372036854775807, not '1e3'"),
        ("queues/%2F/q/messages?to=" + "9" * 5000, "'to' must be"),
        ("queues/%2F/q/messages?columns=body,colour", "'columns' must be some of queue, seq, exchange"),
        ("queues/%2F/q/messages?columns=body,body", "each at most once"),
        ("readers/%2F/g/queues/q/messages", "the query lacks 'upto'"),
    ],
)
def test_a_wrong_query_is_said(api: API, channel: BlockingChannel, path: str, reason: str) -> None:
    channel.queue_declare("q")
    response = api.session.get(f"{api.address}/api/{path}", timeout=30)
    assert response.status_code == 400
    assert reason in response.json()["reason"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body is not JSON: not an object"),
        (b'{"queues": []}', "'queues' must be an object of queue names and whole numbers"),
        (b'{"queues": {"q": "x"}}', "'queues' of queue 'q' must be a whole number from 0, not 'x'"),
        (b'{"queues": {"q": -1}}', "'queues' of queue 'q' must be a whole number from 0, not -1"),
        (b'{"queues": {"q": true}}', "'queues' of queue 'q' must be a whole number from 0, not True"),
        (b'{"queues": {"q": 9223372036854775808}}', "'queues' of queue 'q' must be a whole number"),
        (b'{"queues": {}, "max_messages": 1.5}', "'max_messages' must be a whole number from 0 or null, not 1.5"),
        (b'{"queues": {}, "last_seq": {"q": null}}', "'last_seq' of queue 'q' must be a whole number from 0, not None"),
        (b'{"queues": {}, "lease": 0}', "'lease' must be a number of seconds up to 86400, not 0"),
        (b'{"queues": {}, "lease": NaN}', "the body is not JSON: NaN is no JSON number"),
        (b'{"queues": {}, "lease": "x"}', "'lease' must be a number of seconds up to 86400, not 'x'"),
    ],
)
def test_a_wrong_body_is_said(api: API, body: bytes, reason: str) -> None:
    response = api.request("POST", "readers", "/", "g", "reserve", data=body)
    assert response.status_code == 400
    assert reason in response.json()["reason"]


def test_a_reservation_with_one_unknown_queue_reserves_nothing(api: API, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", [b"1"])
    response = api.request("POST", "readers", "/", "g", "reserve", json={"queues": {"q": None, "nothing": None}})
    assert (response.status_code, response.json()["reason"]) == (404, "no queue 'nothing' in vhost '/'")
    assert api.counts("q") == (1, 0)


@pytest.mark.parametrize("octets", [b"\0" * 100, b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x01"])
def test_what_is_not_http_closes_only_its_connection(api: API, broker: RunningBroker, octets: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=10) as connection:
        connection.sendall(octets)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert not answer.startswith(b"HTTP/1.1 5")
    assert api.get("overview", columns="node")


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = api.address.removeprefix("http://").rpartition(":")
    head = (
        "PUT /api/queues/%2F/unfinished HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(head.encode())
        client.shutdown(socket.SHUT_WR)
        while client.recv(1000):
            pass
    assert api.request("GET", "queues", "/", "unfinished").status_code == 404
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
