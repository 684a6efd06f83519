"""Messages that no queue claims at the start are named."""

from pathlib import Path

import requests
from tests.store.opened import Opened, make_messages
from tests.wire import login

from jumpmq.testing import JumpMQ


def test_messages_of_a_queue_without_a_definition_are_named(tmp_path: Path) -> None:
    with JumpMQ(tmp_path / "data") as broker:
        login(broker.port).channel().queue("kept", durable=True, exclusive=False)
        assert "is lost" not in broker.log.read_text()
        broker.stop()
        opened = Opened(broker.data_dir)
        opened.store.batches()
        for kind, key, value in opened.store.definitions():
            opened.store.put(kind, key, value)
        opened.store.append(77, make_messages(1, 5))
        opened.commit()
        opened.close()
        broker.start()
        assert "the definition of queue number 77 is lost, and with it 5 messages" in broker.log.read_text()
        metrics = requests.get(f"http://127.0.0.1:{broker.http_port}/metrics", auth=("guest", "guest"), timeout=5).text
        assert "\njumpmq_losses 1" in metrics
