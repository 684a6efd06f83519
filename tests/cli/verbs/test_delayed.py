"""`list_delayed` and `cancel_delayed`."""

import json

import pika
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Control, Output


def test_what_an_exchange_delays_is_listed_and_cancelled(
    channel: BlockingChannel, control: Control, output: Output
) -> None:
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.confirm_delivery()
    for delay in (3_600_000, 7_200_000, 1_800_000):
        channel.basic_publish("later", f"key {delay}", b"body", pika.BasicProperties(headers={"x-delay": delay}))
    listed = json.loads(output("list_delayed", "later", "--formatter", "json"))
    assert [(one["number"], one["routing_key"], one["payload_bytes"]) for one in listed] == [
        (1, "key 3600000", 4),
        (2, "key 7200000", 4),
        (3, "key 1800000", 4),
    ]
    assert listed[2]["due"] < listed[0]["due"] < listed[1]["due"]
    output("cancel_delayed", "later", "1", "3")
    gone = control("cancel_delayed", "later", "2", "3")
    assert (gone.returncode, "No delayed message has the number: 3" in gone.stderr) == (65, True)
    assert json.loads(output("list_delayed", "later", "--formatter", "json")) == []
    channel.basic_publish("later", "k", b"", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    output("cancel_delayed", "later", "--all")
    assert json.loads(output("list_delayed", "later", "--formatter", "json")) == []


def test_what_cannot_be_listed_or_cancelled(channel: BlockingChannel, control: Control) -> None:
    for arguments, status, words in (
        (["list_delayed", "amq.direct"], 65, "is of type direct, which delays nothing"),
        (["cancel_delayed", "none", "1"], 65, "not found"),
        (["cancel_delayed", "none", "1", "--all"], 64, "give numbers of messages, or --all"),
    ):
        result = control(*arguments)
        assert (result.returncode, words in result.stderr) == (status, True), result
        assert "Traceback" not in result.stderr
