"""Retention while writes to a stream fail."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pika
import requests
from pika.adapters.blocking_connection import BlockingChannel
from tests.http.api import API, publish
from tests.waiting import until

from jumpmq import RunningBroker


def test_a_limit_takes_effect_once_another_stream_can_be_written(
    broker: RunningBroker, api: API, channel: BlockingChannel, tmp_path: Path
) -> None:
    stream = {"x-queue-type": "stream"}
    channel.queue_declare("old", durable=True, arguments={**stream, "x-stream-max-segment-size-bytes": 2000})
    publish(channel, "old", [bytes(1000) for _ in range(12)])
    (directory,) = (tmp_path / "broker" / "streams").iterdir()
    assert len(list(directory.iterdir())) > 3
    channel.queue_declare("stuck", durable=True, arguments=stream)
    (stuck,) = set((tmp_path / "broker" / "streams").iterdir()) - {directory}
    shutil.rmtree(stuck)
    stuck.touch()  # a missing directory would be recreated
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as other:
        other.channel().basic_publish("", "stuck", b"never written")
    limit: dict[str, Any] = {"pattern": "old", "definition": {"max-length-bytes": 3000}}
    with contextlib.suppress(requests.Timeout):  # the answer waits for the commit
        api.session.put(f"{api.address}/api/policies/%2F/limit", json=limit, timeout=0.5)
    stuck.unlink()
    until(lambda: len(list(directory.iterdir())) < 4)
    until(lambda: api.get("queues", "/", "stuck")["messages"] == 1)
