"""Many clients that send or read slowly do not block the management port for other clients."""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import pytest
import requests
from tests.waiting import PATIENCE, until

import jumpmq
from jumpmq.broker.timing import BrokerTiming
from jumpmq.http import protocol

LOGIN = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
TRICKLE = (
    b"POST /session HTTP/1.1\r\nHost: localhost\r\nX-JumpMQ-Page: 1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
TIMING = BrokerTiming(http_grace=1.0, http_stalled=1.5, http_look=0.2)
PIPELINED = b"GET /api/definitions HTTP/1.1\r\nHost: localhost\r\n" + LOGIN + b"\r\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[jumpmq.RunningBroker]:
    """A broker with short timeouts and twenty connections."""
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 20)
    with jumpmq.running(timing=getattr(request, "param", TIMING)) as running:
        yield running


class Dial(Protocol):
    def __call__(self, address: str = "127.0.0.1") -> socket.socket: ...


@pytest.fixture
def dial(quick: jumpmq.RunningBroker) -> Iterator[Dial]:
    """Open sockets from a local address; closed at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda address="127.0.0.1": stack.enter_context(
            socket.create_connection(("127.0.0.1", quick.http_port), PATIENCE, (address, 0))
        )


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(0.05)
    try:
        return not sock.recv(1 << 20)
    except TimeoutError:
        return False
    except OSError:
        return True


def status(broker: jumpmq.RunningBroker) -> int:
    url = f"http://127.0.0.1:{broker.http_port}/api/whoami"
    return requests.get(url, auth=("guest", "guest"), timeout=PATIENCE).status_code


def test_a_body_that_trickles_is_given_up(dial: Dial) -> None:
    slow = dial()
    slow.sendall(TRICKLE)
    began = time.monotonic()
    while not is_closed(slow):
        assert time.monotonic() - began < PATIENCE
        with contextlib.suppress(OSError):
            slow.sendall(b" ")


def test_a_body_that_is_sent_steadily_is_taken(quick: jumpmq.RunningBroker, dial: Dial) -> None:
    client = dial()
    body = b'{"users": []' + b" " * 8000 + b"}"
    head = b"POST /api/users/bulk-delete HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(head + LOGIN + b"Content-Length: %d\r\n\r\n" % len(body))
    for first in range(0, len(body), 800):
        client.sendall(body[first : first + 800])
        time.sleep(0.2)
    assert client.recv(100).startswith(b"HTTP/1.1 204")


@pytest.mark.slow
def test_answers_that_are_not_read_are_given_up(quick: jumpmq.RunningBroker, dial: Dial) -> None:
    queues: list[dict[str, Any]] = [
        {"name": f"{'long' * 50}-{number}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        for number in range(200)
    ]
    url = f"http://127.0.0.1:{quick.http_port}/api/definitions"
    requests.post(url, json={"queues": queues}, auth=("guest", "guest"), timeout=PATIENCE).raise_for_status()
    client = dial()
    client.sendall(PIPELINED * 300)
    time.sleep(4 * TIMING.http_stalled)
    received = 0
    client.settimeout(PATIENCE)
    with contextlib.suppress(ConnectionError):
        while octets := client.recv(1 << 16):
            received += len(octets)
    assert received < 300 * 60_000


@pytest.mark.slow
@pytest.mark.parametrize("sent", [TRICKLE, PIPELINED, b""], ids=["trickling", "unread", "silent"])
def test_one_address_does_not_take_all_places(quick: jumpmq.RunningBroker, dial: Dial, sent: bytes) -> None:
    others = [dial("127.0.0.9") for _ in range(30)]
    for one in others:
        with contextlib.suppress(OSError):
            one.sendall(sent)
    until(lambda: status(quick) == 200)
    assert [status(quick) for _ in range(5)] == [200] * 5


def test_requests_that_keep_their_places_do_not_take_all(quick: jumpmq.RunningBroker, dial: Dial) -> None:
    url = f"http://127.0.0.1:{quick.http_port}/api/readers/%2F/g/open"
    opened = requests.post(url, json={"query": "q", "lease": 60}, auth=("guest", "guest"), timeout=PATIENCE)
    body = json.dumps({"session": opened.json()["session"]}).encode()
    attend = b"POST /api/readers/%2F/g/attend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + LOGIN
    for _ in range(22):
        with contextlib.suppress(ConnectionError):  # the last find no place
            one = dial("127.0.0.9")
            one.sendall(attend + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            one.recv(1000)
    assert [status(quick) for _ in range(5)] == [200] * 5


@pytest.mark.parametrize("quick", [replace(TIMING, http_grace=PATIENCE)], indirect=True)
def test_of_the_address_with_most_the_user_with_most_loses_first(quick: jumpmq.RunningBroker, dial: Dial) -> None:
    """The address with most requests loses the longest idle request of its user with most requests."""
    for user in ("many", "few"):
        url = f"http://127.0.0.1:{quick.http_port}/api/users/{user}"
        wanted = {"password": user, "tags": "administrator"}
        requests.put(url, json=wanted, auth=("guest", "guest"), timeout=PATIENCE).raise_for_status()

    def asking(user: str) -> socket.socket:
        one = dial("127.0.0.9")
        login = base64.b64encode(f"{user}:{user}".encode())
        head = b"POST /api/users/bulk-delete HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Authorization: Basic " + login + b"\r\nContent-Length: 100000\r\n\r\n"
        one.sendall(head)
        return one

    few = [asking("few") for _ in range(5)]
    many = [asking("many") for _ in range(15)]
    for progressing in (few, many, many[1:]):
        time.sleep(2 * TIMING.http_look)
        for one in progressing:
            one.sendall(b" " * 20_000)
    time.sleep(2 * TIMING.http_look)
    assert status(quick) == 200
    assert [is_closed(one) for one in many] == [True] + [False] * 14
    assert not any(is_closed(one) for one in few)


def test_content_length_beside_transfer_encoding_is_refused(dial: Dial) -> None:
    client = dial()
    client.sendall(
        b"POST /api/users/bulk-delete HTTP/1.1\r\nHost: localhost\r\n"
        + LOGIN
        + b"Content-Type: application/json\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400") and b"connection: close" in answer.lower()
    until(lambda: is_closed(client))
