"""Clients that do not read, or write faster than the disk, cost the broker no more memory than its budget."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp.frame import marshal
from tests.wire import Basic, WireConnection, login

import jumpmq
from jumpmq import RunningBroker

BODY = bytes(range(256)) * 4096
PERSISTENT = Basic.Properties(delivery_mode=2)
COUNT = 240
"""Number of published messages of one megabyte."""
ALLOWED = 128 << 20
"""Allowed growth of the process in octets, for any count: budgets, buffers, copies of messages in the making."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with next to no memory for messages."""
    with jumpmq.running(data_dir=tmp_path / "data", memory_limit="8MiB", write_backlog=4 << 20) as running:
        yield running


class Memory(threading.Thread):
    """Records the growth of the current process, including the broker."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.growth = 0
        self._before = resident()
        self._done = threading.Event()

    def __enter__(self) -> "Memory":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(0.01):
            self.growth = max(self.growth, resident() - self._before)


def resident() -> int:
    """Return the resident octets of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_who_asks_without_reading_is_not_read_either(broker: RunningBroker) -> None:
    with login(broker.port) as idle, login(broker.port) as busy:
        publish(busy, busy.channel().queue("orders", durable=True, exclusive=False))
        asking = idle.channel()
        with Memory() as memory:
            idle.send(b"".join(marshal(Basic.Get(queue="orders", no_ack=True), asking.number) for _ in range(COUNT)))
            busy.channel().queue()
            assert asking.connection.next_event(asking.number).method.message_count == COUNT - 1
            busy.channel().queue()
            assert busy.channel().ready("orders") > COUNT // 2
        assert memory.growth < ALLOWED
        left = [asking.next().method.message_count for _ in range(COUNT - 1)]
        assert left == list(range(COUNT - 2, -1, -1))


def publish(connection: WireConnection, queue: str) -> None:
    """Publish at the broker's full speed, and wait for the confirms."""
    channel = connection.channel()
    channel.confirm_select()
    for _ in range(COUNT):
        channel.publish("", queue, BODY, PERSISTENT)
    channel.wait_for_confirms()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc to read the memory from")
def test_neither_a_fast_publisher_nor_a_consumer_that_does_not_read_fills_the_memory(broker: RunningBroker) -> None:
    with login(broker.port) as idle, login(broker.port) as busy, login(broker.port) as bystander:
        consumer = idle.channel()
        consumer.queue("orders", durable=True, exclusive=False)
        consumer.send(Basic.Consume(queue="orders", no_ack=True))
        with Memory() as memory:
            publish(busy, "orders")
            assert bystander.channel().ready("orders") > COUNT // 2
        assert memory.growth < ALLOWED
        tags: list[int] = []
        with Memory() as memory:
            consumer.connection.expect(Basic.ConsumeOk, channel=consumer.number)
            while len(tags) < COUNT:
                message = consumer.next()
                assert message.body == BODY
                tags.append(message.method.delivery_tag)
        assert memory.growth < ALLOWED
        assert tags == list(range(1, COUNT + 1))
