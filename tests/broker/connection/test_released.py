"""Closed connections free all memory without a garbage collection."""

import gc
import ssl
from collections import Counter
from collections.abc import Iterator

import pytest
import requests
from fuzzing.tls_memory import KINDS, Clients, growth
from tests.waiting import until

import jumpmq
from jumpmq import RunningBroker
from jumpmq.broker.security import certificates
from jumpmq.broker.timing import BrokerTiming

COUNT = 20

OBJECTS = "Connection", "BoundedProtocol", "SSLProtocol", "RequestResponseCycle"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with jumpmq.running(tls=True) as running:
        requests.get(f"{running.http_url}/", timeout=60)  # the management port is loaded
        yield running


@pytest.fixture
def no_collections() -> Iterator[Counter[str]]:
    """Disables garbage collection; gives the objects that brokers of earlier tests still hold."""
    gc.collect()
    gc.disable()
    yield kept()
    gc.enable()


def kept() -> Counter[str]:
    """Return the number of objects per type of connection object in memory, uvloop's included."""
    found = Counter(type(one).__name__ for one in gc.get_objects())
    return Counter({name: found[name] for name in OBJECTS if found[name]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_connection_is_released(broker: RunningBroker, no_collections: Counter[str], kind: str) -> None:
    clients = Clients(broker.tls_port, broker.https_port, ssl.create_default_context(cafile=broker.tls_ca))
    clients.come_and_go(kind, COUNT)
    until(lambda: kept() <= no_collections)


def test_few_sessions_of_tls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few TLS sessions are kept of clients with TLS 1.2, without tickets, that close cleanly."""
    monkeypatch.setattr(certificates, "MOST_SESSIONS", 10)
    with jumpmq.running(tls=True, timing=BrokerTiming(certificates=0.1)) as broker:
        context = ssl.create_default_context(cafile=broker.tls_ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET
        clients = Clients(broker.tls_port, broker.https_port, context)
        clients.come_and_go("silent, TLS closed", 2 * COUNT)
        until(lambda: sum(one.session_stats()["number"] for one in ssl_contexts()) <= 10)
        clients.come_and_go("logged in", 1)


def ssl_contexts() -> list[ssl.SSLContext]:
    """Return all TLS contexts in the memory of this process."""
    return [one for one in gc.get_objects() if isinstance(one, ssl.SSLContext)]


@pytest.mark.slow
def test_memory_does_not_grow_with_connections() -> None:
    assert growth(20, 100) < 8_000_000
