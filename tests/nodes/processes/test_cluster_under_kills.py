"""A cluster as processes, with nodes and members of etcd killed and stopped under load: each message is counted."""

from pathlib import Path

import pika
import pytest
from fuzzing.cluster import run
from tests.etcd import etcd, needs_etcd

from jumpmq.testing import JumpMQ

pytestmark = needs_etcd


@pytest.mark.slow
def test_nothing_confirmed_is_lost_whichever_process_dies() -> None:
    assert run(seconds=25, seed=5) == []


def test_a_client_with_several_addresses_goes_on_at_another_node(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        options = ("--cluster", "test", "--etcd", member.url)
        with (
            JumpMQ(tmp_path / "1", "one@host", options) as first,
            JumpMQ(tmp_path / "2", "two@host", options) as second,
        ):
            addresses = [pika.ConnectionParameters("127.0.0.1", node.port) for node in (first, second)]
            with pika.BlockingConnection(addresses[1]) as connection:
                connection.channel().queue_declare("q", durable=True)
            connection = pika.BlockingConnection(addresses)
            connection.channel().basic_publish("", "q", b"before")
            first.kill()
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                connection.process_data_events(10)
                connection.process_data_events(10)
            with pika.BlockingConnection(addresses) as again:
                channel = again.channel()
                channel.confirm_delivery()
                channel.basic_publish("", "q", b"after", mandatory=True)
                assert channel.queue_declare("q", passive=True).method.message_count >= 1
            first.start()
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", first.port)) as back:
                assert back.channel().basic_get("q", auto_ack=True)[2] in (b"before", b"after")
