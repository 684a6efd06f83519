"""What `docs/rabbitmq-from-spark.md` says to type works with each RabbitMQ that is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pika
import pytest

from jumpmq.testing import Installation, RabbitMQ

PAGE = (Path(__file__).parents[2] / "docs/rabbitmq-from-spark.md").read_text()

pytestmark = pytest.mark.skipif(not RabbitMQ.available(), reason=RabbitMQ.available().reason)


@pytest.mark.parametrize("installation", Installation.all(), ids=lambda one: one.number)
def test_its_programs_run_one_after_the_other(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installation: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with RabbitMQ(installation=installation) as broker:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_declare("clicks", durable=True, arguments={"x-queue-type": "stream"})
            for number in range(100):
                channel.basic_publish("", "clicks", b"%d" % number)
        names: dict[str, object] = {}
        for source in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
            source = source.replace("localhost:5672", f"127.0.0.1:{broker.port}")
            source = re.sub(
                r'"(\w+\.(?:parquet|checkpoint))"', rf'"{tmp_path}/\1"', source
            )  # Java stays where it began
            exec(compile(source, "docs/rabbitmq-from-spark.md", "exec"), names)
        assert capsys.readouterr().out.split() == ["1000", "1000", "1000", "100"]
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            assert channel.queue_declare("orders", passive=True).method.message_count == 0
