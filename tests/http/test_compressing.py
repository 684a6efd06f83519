"""JSON answers are compressed for clients that accept compression."""

import http.client
import json
import zlib

import pytest
import requests
from pika.adapters.blocking_connection import BlockingChannel

from jumpmq import RunningBroker


def get(broker: RunningBroker, path: str, encoding: str) -> tuple[http.client.HTTPResponse, bytes]:
    """Return an answer as received, with its octets."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    headers = {"Authorization": requests.auth._basic_auth_str("guest", "guest"), "Accept-Encoding": encoding}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read()


@pytest.mark.parametrize("path", ["/api/queues", "/api/queues?page=1", "/api/overview"])
def test_long_answers_are_compressed(broker: RunningBroker, channel: BlockingChannel, path: str) -> None:
    for number in range(50):
        channel.queue_declare(f"compressed-{number}", auto_delete=True)
    plain, body = get(broker, path, "identity")
    packed, octets = get(broker, path, "gzip, deflate")
    assert (plain.getheader("Content-Encoding"), packed.getheader("Content-Encoding")) == (None, "gzip")
    varies = packed.getheader("Vary")
    assert plain.getheader("Vary") == varies or (varies and "Accept-Encoding" in varies)
    assert len(octets) < len(body) / 2
    assert json.loads(zlib.decompress(octets, 31)).__class__ is json.loads(body).__class__
    for number in range(50):
        channel.queue_delete(f"compressed-{number}")


@pytest.mark.parametrize(
    ("path", "encoding"),
    [("/api/whoami", "gzip"), ("/api/overview", "gzip;q=0"), ("/api/overview", "br"), ("/metrics", "gzip")],
)
def test_others_are_not(broker: RunningBroker, path: str, encoding: str) -> None:
    answer, body = get(broker, path, encoding)
    assert (answer.status, answer.getheader("Content-Encoding")) == (200, None)
    assert body
