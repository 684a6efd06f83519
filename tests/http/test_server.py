"""The management port opens and closes with its broker."""

import http.client
import importlib
import socket
import threading
import time
from types import ModuleType

import pika
import pytest
from tests.http.api import API

import jumpmq
from jumpmq.http import arriving, server


def test_a_busy_port_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with (
            pytest.raises(jumpmq.BrokerError, match=f"cannot listen for http on localhost:{port}: Address already"),
            jumpmq.running(http_port=port),
        ):
            pass


def test_it_stops_soon_with_streams_and_idle_connections_open() -> None:
    before = set(threading.enumerate())
    with jumpmq.running() as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            for _ in range(50):
                channel.basic_publish("", "q", bytes(1 << 20))
        api = API(broker.http_url)
        while api.counts("q") != (50, 0):
            time.sleep(0.01)
        stalled = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
        stalled.request("GET", "/api/queues/%2F/q/messages", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        assert stalled.getresponse().status == 200
        idle = socket.create_connection(("127.0.0.1", broker.http_port))
        began = time.monotonic()
    assert time.monotonic() - began < 20, "it waited for its clients"
    assert not [one.name for one in set(threading.enumerate()) - before if one.name.startswith("jumpmq")]
    stalled.close()
    idle.close()


def test_the_first_clients_wait_until_what_answers_them_is_loaded() -> None:
    with jumpmq.running() as broker:
        clients = [socket.create_connection(("127.0.0.1", broker.http_port), timeout=60) for _ in range(5)]
        for client in clients:
            client.sendall(b"GET /api/overview HTTP/1.1\r\nhost: localhost\r\n")
        clients.pop().close()
        for client in clients:
            client.sendall(b"authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n")
        for client in clients:
            with client, client.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 200 OK\r\n"


def test_many_silent_clients_do_not_keep_it_from_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent clients, with a file descriptor each, do not prevent the loading of the server: the oldest ones are
    closed.
    """
    free, load = threading.Event(), importlib.import_module

    def loaded(name: str) -> ModuleType:
        free.wait(30)
        return load(name)

    monkeypatch.setattr(arriving, "connection_limit", lambda: 3 * arriving.SHARE)
    monkeypatch.setattr(importlib, "import_module", loaded)
    with jumpmq.running() as broker:
        address = "127.0.0.1", broker.http_port
        asking = socket.create_connection(address, timeout=60)
        asking.sendall(b"GET /api/overview HTTP/1.1\r\nhost: localhost\r\n")
        time.sleep(0.1)
        silent = [socket.create_connection(address, timeout=60) for _ in range(5)]
        for client in silent[:3]:
            assert client.recv(1) == b""
        free.set()
        asking.sendall(b"authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n")
        with asking.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        for client in (asking, *silent):
            client.close()


def test_clients_of_amqp_are_served_while_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, free, ended, load = threading.Event(), threading.Event(), threading.Event(), importlib.import_module

    def loaded(name: str) -> ModuleType:
        begun.set()
        free.wait(30)
        ended.set()
        return load(name)

    monkeypatch.setattr(importlib, "import_module", loaded)
    with jumpmq.running() as broker, pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        with socket.create_connection(("127.0.0.1", broker.http_port), timeout=60):
            assert begun.wait(30)
            channel.basic_publish("", "q", b"confirmed meanwhile", pika.BasicProperties(delivery_mode=2))
            assert not ended.is_set()
            free.set()


def test_what_cannot_be_loaded_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with jumpmq.running() as broker:
        with monkeypatch.context() as damaged:
            damaged.setattr(server, "SERVING", "jumpmq.http.no_such_module")
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
                overview(broker)
        assert "the management port cannot answer" in caplog.text
        assert overview(broker) == 200


def overview(broker: jumpmq.RunningBroker) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    connection.request("GET", "/api/overview", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    return connection.getresponse().status


def test_it_stops_while_what_answers_is_loaded() -> None:
    with jumpmq.running() as broker:
        client = socket.create_connection(("127.0.0.1", broker.http_port), timeout=60)
    assert client.recv(1) == b""
