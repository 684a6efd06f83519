"""Listings of clients, and closing of connections."""

import json

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Failure, Output


def test_clients_are_listed(channel: BlockingChannel, output: Output) -> None:
    channel.queue_declare("orders")
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("orders", lambda *_: None, consumer_tag="packer")
    ((user, host, state),) = [
        line.split("\t") for line in output("-s", "list_connections", "user", "host", "state").splitlines()
    ]
    assert (user, host, state) == ("guest", "127.0.0.1", "running")
    (connection,) = json.loads(output("list_connections", "--formatter", "json", "name", "client_properties"))
    assert connection["client_properties"]["connection_name"] == "till"
    assert output("-s", "list_channels", "connection", "number", "consumer_count", "prefetch_count") == (
        f"{connection['name']}\t1\t1\t5\n"
    )
    assert output("-s", "list_consumers") == f"orders\t{connection['name']} (1)\tpacker\ttrue\t5\ttrue\t[]\n"


def test_a_connection_is_closed_by_the_pid_listed(channel: BlockingChannel, output: Output) -> None:
    (pid,) = output("-s", "list_connections", "pid").splitlines()
    output("close_connection", pid, "go home\nnow")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go home now"):
        channel.queue_declare("orders")


def test_all_connections_of_a_virtual_host_are_closed(channel: BlockingChannel, output: Output) -> None:
    assert output("close_all_connections", "-p", "elsewhere", "bye").splitlines()[1:] == ["Closed 0 connections"]
    assert output("close_all_connections", "bye").splitlines() == [
        "Closing all connections in vhost /, reason: bye...",
        "Closed 1 connections",
    ]
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="bye"):
        channel.queue_declare("orders")


def test_no_such_connection(failure: Failure) -> None:
    assert failure("close_connection", "nobody", "bye") == (69, "Error:\nconnection nobody does not exist\n")
