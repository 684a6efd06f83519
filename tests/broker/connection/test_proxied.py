"""Clients behind a load balancer with the PROXY protocol keep their addresses."""

import socket
import ssl
import struct
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.cli.commands import serving
from tests.wire import ConnectionClosed, WireConnection, dial, login

import jumpmq
from jumpmq.broker.connection.proxied import Ends, Header, NoHeader, Proxies

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = struct.pack("!4s4sHH", bytes([203, 0, 113, 7]), bytes([10, 0, 0, 1]), 40001, 5672)
LINE = b"PROXY TCP4 203.0.113.7 10.0.0.1 40001 5672\r\n"
ENDS = Ends(("203.0.113.7", 40001), ("10.0.0.1", 5672))
"""Addresses of the test network of RFC 5737."""

GREETING = b"AMQP\x00\x00\x09\x01"


def binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2) + rest


V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
HEADERS = {
    LINE: ENDS,
    b"PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n": Ends(("2001:db8::7", 1), ("2001:db8::1", 65535)),
    b"PROXY UNKNOWN ffff:f...\r\n": None,
    binary(0x21, 0x11, V4): ENDS,
    binary(0x21, 0x11, V4 + b"\x04\x00\x01x"): ENDS,  # with an extension
    binary(0x21, 0x21, V6 + struct.pack("!HH", 1, 2)): Ends(("2001:db8::7", 1), ("2001:db8::1", 2)),
    binary(0x21, 0x31, bytes(216)): None,  # Unix sockets
    binary(0x20, 0x00, b""): None,  # a health check
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_header_ends_where_it_ends_however_it_comes(header: bytes, size: int) -> None:
    octets, found = header + GREETING, Header()
    while not found.is_complete:
        octets = octets[found.take(octets[:size]) :]
    assert octets == GREETING
    assert found.ends == HEADERS[header]


@pytest.mark.parametrize(
    "octets",
    [
        GREETING,
        b"PROXX",
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40001 66000\r\n",
        b"PROXY TCP4 2001:db8::7 10.0.0.1 40001 5672\r\n",
        b"PROXY TCP4 \xff \xff 1 1\r\n",
        b"PROXY TCP6 ::1%\x1b[31m ::1 1 1\r\n",
        b"PROXY " + b"x" * 200,
        binary(0x21, 0x11, V4[:-1]),
        binary(0x31, 0x11, V4),
        binary(0x2F, 0x11, V4),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_what_is_no_header_is_refused(octets: bytes) -> None:
    with pytest.raises(NoHeader):
        Header().take(octets)


def test_networks_are_trusted_and_nobody_else() -> None:
    proxies = Proxies("10.0.0.0/8, ::1")
    assert [proxies.trusts(one) for one in ("10.1.2.3", "::ffff:10.1.2.3", "::1", "11.0.0.1", "fe80::1%eth0")] == [
        *(True, True, True, False, False)
    ]
    with pytest.raises(ValueError):
        Proxies("10.0.0.0/8,balancer")


def client(http_url: str, port: int, **options: Any) -> AbstractContextManager[WireConnection]:
    """Return the connection of a user allowed from any address, unlike guest."""
    for path, body in {
        "users/app": {"password": "secret", "tags": ""},
        "permissions/%2F/app": dict.fromkeys(("configure", "write", "read"), ".*"),
    }.items():
        requests.put(f"{http_url}/api/{path}", json=body, timeout=30).raise_for_status()
    return closing(login(port, user="app", password="secret", **options))


def peers(http_url: str) -> list[tuple[str, int, bool]]:
    found = requests.get(f"{http_url}/api/connections", timeout=30).json()
    return [(one["peer_host"], one["peer_port"], one["ssl"]) for one in found]


def test_a_proxy_that_is_trusted_is_believed_and_must_say_it() -> None:
    with jumpmq.running(proxy_protocol_from="127.0.0.1") as broker:
        with client(broker.http_url, broker.port, preamble=LINE):
            assert peers(broker.http_url) == [("203.0.113.7", 40001, False)]
        with pytest.raises(ConnectionClosed, match="ACCESS_REFUSED"):
            login(broker.port, preamble=LINE)  # guest, from another machine
        for wrong in (GREETING, b"GET / HTTP/1.1\r\n\r\n"):
            refused = dial(broker.port, preamble=wrong)
            assert refused.closed_by_broker
            refused.hang_up()
        with closing(login(broker.port, preamble=binary(0x20, 0, b""))):
            assert [host for host, _, _ in peers(broker.http_url)] == ["127.0.0.1"], "of the proxy itself"


def test_a_header_of_somebody_else_is_not_believed() -> None:
    with jumpmq.running(proxy_protocol_from="192.0.2.1") as broker:
        with closing(login(broker.port)):
            assert [host for host, _, _ in peers(broker.http_url)] == ["127.0.0.1"]
        refused = dial(broker.port, preamble=LINE)
        assert refused.read_octets() == GREETING
        refused.hang_up()


@pytest.mark.parametrize("processes", [0, 1])
def test_the_header_stands_before_tls(processes: int) -> None:
    with jumpmq.running(tls=True, tls_processes=processes, proxy_protocol_from="127.0.0.0/8") as broker:
        context = ssl.create_default_context(cafile=str(broker.tls_ca))
        with client(broker.http_url, broker.tls_port, tls=context, preamble=binary(0x21, 0x11, V4)):
            assert peers(broker.http_url) == [("203.0.113.7", 40001, True)]


@pytest.mark.slow
def test_workers_believe_it_too(tmp_path: Path) -> None:
    with serving(tmp_path, JUMPMQ_WORKERS="2", JUMPMQ_PROXY_PROTOCOL_FROM="127.0.0.1") as broker:
        url = f"http://guest:guest@127.0.0.1:{broker.http_port}"
        with client(url, broker.port, preamble=LINE):
            assert peers(url) == [("203.0.113.7", 40001, False)]
