"""Topic permissions hold for every routing key of a message, from any header or queue."""

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API

import jumpmq


@pytest.fixture(scope="module")
def channel(broker: jumpmq.RunningBroker) -> Callable[[], BlockingChannel]:
    """Opens a channel of a user allowed to publish only topics with the prefix ``mine.``."""
    api, everything = API(broker.http_url), dict.fromkeys(("configure", "write", "read"), ".*")
    api.request("PUT", "users", "limited", json={"password": "secret", "tags": ""})
    api.request("PUT", "permissions", "/", "limited", json=everything)
    topics = {"exchange": "amq.topic", "write": r"^mine\.", "read": ".*"}
    api.request("PUT", "topic-permissions", "/", "limited", json=topics)

    def opened() -> BlockingChannel:
        login = pika.PlainCredentials("limited", "secret")
        made = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=login)).channel()
        made.confirm_delivery()
        return made

    return opened


def publish(channel: BlockingChannel, key: str, **headers: list[str]) -> None:
    channel.basic_publish("amq.topic", key, b"x", pika.BasicProperties(headers=headers or None))


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_other_routing_keys_of_a_message_are_topics_too(channel: Callable[[], BlockingChannel], header: str) -> None:
    publish(channel(), "mine.a", **{header: ["mine.b"]})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to topic 'theirs\.b'"):
        publish(channel(), "mine.a", **{header: ["mine.b", "theirs.b"]})


def test_dead_letters_are_not_sent_to_a_topic_that_their_queue_was_given_by_who_may_not(
    channel: Callable[[], BlockingChannel],
) -> None:
    arguments = {"x-dead-letter-exchange": "amq.topic", "x-message-ttl": 1}
    channel().queue_declare("allowed", arguments=arguments | {"x-dead-letter-routing-key": "mine.dead"})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to topic 'theirs\.dead'"):
        channel().queue_declare("refused", arguments=arguments | {"x-dead-letter-routing-key": "theirs.dead"})
