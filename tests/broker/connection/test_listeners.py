"""Addresses and ports of the broker's listeners."""

import socket

import pytest

import jumpmq

BOTH = ["127.0.0.1", "::1"]


@pytest.fixture(autouse=True)
def ipv6() -> None:
    """Skips a test on machines without IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("host", ["localhost", "::"])
def test_clients_of_both_kinds_of_address_are_served_on_one_port(host: str) -> None:
    with jumpmq.running(host=host) as broker:
        for address in BOTH:
            for port in (broker.port, broker.http_port):
                socket.create_connection((address, port)).close()


def test_an_address_is_meant_as_it_is() -> None:
    with jumpmq.running(host="127.0.0.1") as broker, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("::1", broker.port))


def test_a_port_that_is_taken_on_one_of_the_addresses_is_told() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Exception, match=f"cannot listen for amqp on localhost:{port}: Address already in use"),
            jumpmq.running(port=port),
        ):
            pass
