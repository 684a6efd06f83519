"""`list_group_offsets`, `set_group_offset` and `delete_group_offset`."""

import json
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Control, Output

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def streams(channel: BlockingChannel, unique: Callable[[str], str]) -> list[str]:
    names = [unique("s"), unique("s")]
    channel.confirm_delivery()
    for name in names:
        channel.queue_declare(name, durable=True, arguments=STREAM)
        for _ in range(3):
            channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))
    return names


def test_offsets_are_listed_set_and_deleted(streams: list[str], output: Output, unique: Callable[[str], str]) -> None:
    group = unique("g")

    def offsets() -> dict[str, tuple[int, int]]:
        found = json.loads(output("list_group_offsets", "--formatter", "json"))
        return {one["queue"]: (one["offset"], one["lag"]) for one in found if one["group"] == group}

    output("set_group_offset", group, "next", *streams)
    assert offsets() == dict.fromkeys(streams, (3, 0))
    output("set_group_offset", group, "first")
    assert offsets() == dict.fromkeys(streams, (0, 3))
    output("set_group_offset", group, "2", streams[0])
    assert offsets() == {streams[0]: (2, 1), streams[1]: (0, 3)}
    output("set_group_offset", group, "2000-01-01T00:00:00Z", streams[0])
    assert offsets()[streams[0]] == (0, 3)
    output("delete_group_offset", group, streams[0])
    assert list(offsets()) == streams[1:]
    output("delete_group_offset", group)
    assert offsets() == {}


def test_units_have_their_offset(
    streams: list[str], channel: BlockingChannel, output: Output, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    channel.basic_qos(prefetch_count=1)
    for name in streams:
        output("set_group_offset", group, "2", name)
        channel.basic_consume(name, lambda *_: None, arguments={"x-consumer-group": group})
    units = json.loads(output("list_consumer_groups", "--units", "--formatter", "json"))
    assert {one["queue"]: one["offset"] for one in units if one["name"] == group} == dict.fromkeys(streams, 2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["set_group_offset", "none", "first"], "consumer group 'none' has no offset in vhost '/'"),
        (["delete_group_offset", "none"], "consumer group 'none' has no offset in vhost '/'"),
        (["set_group_offset", "g", "middle", "STREAM"], "'offset' must be first, last, next, an offset, or an age"),
        (["set_group_offset", "g", "2026-99T", "STREAM"], "'2026-99T' is no time such as"),
        (["set_group_offset", "g", "first", "no-queue"], "no queue 'no-queue' in vhost '/'"),
    ],
)
def test_what_cannot_be(streams: list[str], control: Control, arguments: list[str], reason: str) -> None:
    result = control(*(streams[0] if word == "STREAM" else word for word in arguments))
    assert (result.returncode != 0, reason in result.stderr) == (True, True), result.stderr
