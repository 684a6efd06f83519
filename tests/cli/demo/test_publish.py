"""The demo's publisher confirms all messages, keeps their order, and reports failures."""

import json

import pika
import pytest

import jumpmq
from jumpmq.cli.demo.flights import FlightMessages, read_flights
from jumpmq.cli.demo.publish import ConfirmedPublisher, PublishError, declare

WEIGHTS = {"q1": 1, "q2": 2}


def numbers(broker: jumpmq.RunningBroker, queue: str) -> list[int]:
    """The numbers of a queue's flights, in order."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(json.loads(body)["number"])
    connection.close()
    return found


@pytest.fixture(scope="module")
def flights() -> FlightMessages:
    return read_flights(6_000)  # more than may be unconfirmed at once


def test_every_message_is_confirmed_and_in_order(flights: FlightMessages) -> None:
    confirmed: list[int] = []
    with jumpmq.running() as broker:
        declare(broker.amqp_url, "flights", WEIGHTS)
        seconds = ConfirmedPublisher(broker.amqp_url, "flights", flights, confirmed.append).publish()
        held = {queue: numbers(broker, queue) for queue in WEIGHTS}
    assert seconds > 0
    assert confirmed == sorted(confirmed)
    assert confirmed[-1] == 6_000
    assert sorted(held["q1"] + held["q2"]) == list(range(1, 6_001))
    assert all(found == sorted(found) for found in held.values())


def test_messages_that_no_queue_takes_are_an_error(flights: FlightMessages) -> None:
    with jumpmq.running() as broker:
        declare(broker.amqp_url, "flights", {})
        with pytest.raises(PublishError, match="returned: NO_ROUTE"):
            ConfirmedPublisher(broker.amqp_url, "flights", flights, lambda confirmed: None).publish()


def test_a_missing_exchange_is_an_error(flights: FlightMessages) -> None:
    with jumpmq.running() as broker, pytest.raises(PublishError, match="NOT_FOUND - no exchange 'flights'"):
        ConfirmedPublisher(broker.amqp_url, "flights", flights, lambda confirmed: None).publish()


def test_no_broker_is_an_error(flights: FlightMessages) -> None:
    with jumpmq.running() as broker:
        pass
    with pytest.raises(PublishError, match="cannot connect"):
        ConfirmedPublisher(broker.amqp_url, "flights", flights, lambda confirmed: None).publish()
