"""Messages without a queue at the start are reported."""

from collections.abc import Callable
from pathlib import Path

import requests
from tests.store.opened import Opened, make_messages
from tests.wire import login

from jumpmq.store.kinds import RETRY
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


def test_retries_of_a_queue_that_was_being_deleted_are_forgotten(tmp_path: Path) -> None:
    def records(change: Callable[[Opened], object] = lambda opened: None) -> list[str]:
        opened = Opened(broker.data_dir)
        opened.store.batches()
        found = opened.store.definitions()
        for kind, key, value in found:
            opened.store.put(kind, key, value)
        change(opened)
        opened.commit()
        opened.close()
        return [key for kind, key, _ in found if kind == RETRY]

    with JumpMQ(tmp_path / "data") as broker:
        broker.stop()
        records(lambda opened: opened.store.put(RETRY, "77 1", [0.0, 1]))
        assert records() == ["77 1"]
        broker.start()
        broker.stop()
        assert records() == []
