"""A broker with little memory keeps every message once and in order, and stays small, wherever the messages are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Serving, serving
from tests.http.api import API
from tests.waiting import until
from tests.wire import Basic, Content, WireChannel, login

from jumpmq.broker.memory.heap import FEWER, SLACK, FreedMemory
from jumpmq.broker.memory.paging import RESTING
from jumpmq.queues.memory import MemoryAccount

Name = Callable[[str], str]
LIMIT = 20 << 20
ALLOWED = LIMIT + 150_000_000
"""An idle broker takes 60 MB of the allowance."""
SIZE = 100_000
COUNT = 1_500
"""Bodies of 150 MB in all."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serving]:
    """A separate broker with measured memory: paging starts at 10 MiB, blocking at 20 MiB."""
    with serving(tmp_path, "--memory-limit", "20MiB") as running:
        yield running


def resident(serve: Serving) -> int:
    return weighed(str(serve.process.pid))


def weighed(process: str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def body(number: int) -> bytes:
    return b"%d " % number + bytes(SIZE)


def publish(serve: Serving, queue: str, delivery_mode: int) -> int:
    """Publish all messages; return the highest memory of the broker."""
    highest = 0
    with login(serve.port) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(COUNT):
            channel.publish("", queue, body(number), Basic.Properties(delivery_mode=delivery_mode))
            if number % 50 == 49:
                while channel.next().delivery_tag <= number:  # tags begin with 1
                    pass
                highest = max(highest, resident(serve))
    return highest


def numbers(messages: list[Content]) -> list[int]:
    return [int(message.body.split(b" ")[0]) for message in messages]


@pytest.mark.parametrize("delivery_mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient-queue"])
def test_a_backlog_and_deliveries_are_paged_and_come_back(serve: Serving, delivery_mode: int, durable: bool) -> None:
    with login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue(f"q-{delivery_mode}-{durable}", durable=durable, exclusive=False)
        assert publish(serve, queue, delivery_mode) < ALLOWED
        assert channel.ready(queue) == COUNT
        # Everything is delivered, and nothing acknowledged.
        holder = connection.channel()
        holder.consume(queue)
        for number in range(COUNT):
            assert numbers([holder.next()]) == [number]
        until(lambda: api(serve).get("queues", "/", queue)["memory"] < LIMIT)
        until(lambda: resident(serve) < ALLOWED)
        # All messages return, in order and unchanged.
        holder.close()
        again = connection.channel()
        again.consume(queue, no_ack=True)
        for number in range(COUNT):
            message = again.next()
            assert message.body == body(number)
            assert message.method.redelivered
            assert message.properties.delivery_mode == delivery_mode
        until(lambda: api(serve).get("queues", "/", queue)["memory"] == 0)
        until(lambda: resident(serve) < ALLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("delivery_mode", [1, 2], ids=["transient", "persistent"])
def test_large_headers_are_paged_as_bodies_are(serve: Serving, delivery_mode: int) -> None:
    with login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("headers", exclusive=False)
        channel.confirm_select()
        highest = 0
        for number in range(COUNT):
            properties = Basic.Properties(delivery_mode=delivery_mode, headers={"number": number, "large": "h" * SIZE})
            channel.publish("", queue, b"m", properties)
            if number % 50 == 49:
                while channel.next().delivery_tag <= number:
                    pass
                highest = max(highest, resident(serve))
        assert highest < ALLOWED
        channel.consume(queue)
        found = [channel.next().properties.headers for _ in range(COUNT)]
        assert [headers["number"] for headers in found] == list(range(COUNT))
        assert {headers["large"] for headers in found} == {"h" * SIZE}
        until(lambda: api(serve).get("queues", "/", queue)["memory"] < LIMIT)
        until(lambda: resident(serve) < ALLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("delivery_mode", [1, 2], ids=["transient", "persistent"])
def test_what_waits_in_queues_that_rest_is_on_disk_alone(tmp_path: Path, delivery_mode: int) -> None:
    """Messages in idle queues are on disk only, even below the limit, and their memory returns to the system."""
    count = 800
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("resting", exclusive=False)
        idle = resident(serve)
        for number in range(count):
            channel.publish("", queue, body(number), Basic.Properties(delivery_mode=delivery_mode))
        assert channel.ready(queue) == count
        assert resident(serve) > idle + count * SIZE * 3 // 4
        until(lambda: resident(serve) < idle + count * SIZE // 2)
        channel.consume(queue, no_ack=True)
        for number in range(count):
            assert channel.next().body == body(number)


@pytest.mark.slow
def test_small_messages_of_queues_that_rest_leave_no_holes(tmp_path: Path) -> None:
    """Small messages of idle queues leave no holes, with large properties and a trickle of new messages."""
    each, times = 1000, 200
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("resting", exclusive=False)
        idle = resident(serve)
        properties = [Basic.Properties(delivery_mode=2, message_id=f"{number:075}") for number in range(each)]
        messages = b"".join(channel.publication("", queue, b"m" * 100, some) for some in properties)
        few = times // 5  # as many as a resting queue keeps
        for sent in range(1, times + 1):
            connection.send(messages)
            if sent == few:
                assert channel.ready(queue) == each * few
                assert resident(serve) > idle + each * few * 250
        assert channel.ready(queue) == each * times

        def rests() -> bool:
            channel.publish("", queue, b"one more")
            return resident(serve) < idle + each * times * 175

        until(rests)


@pytest.mark.slow
def test_what_waits_in_a_thousand_queues_is_on_disk_alone(tmp_path: Path) -> None:
    each, queues = 200, 1000
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        names = [channel.queue(f"resting-{number}", exclusive=False) for number in range(queues)]
        properties = Basic.Properties(delivery_mode=2)
        messages = b"".join(channel.publication("", name, b"m" * 500, properties) for name in names)
        for _ in range(each):
            connection.send(messages)
        assert channel.ready(names[-1]) == each
        published = api(serve).get("nodes")[0]["mem_messages"]
        assert published > 5 * RESTING
        until(lambda: api(serve).get("nodes")[0]["mem_messages"] < RESTING * 1.25)


def test_what_is_purged_goes_back_to_the_system(tmp_path: Path) -> None:
    count = 800
    with serving(tmp_path) as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("purged", exclusive=False)
        idle = resident(serve)
        for number in range(count):
            channel.publish("", queue, body(number))
        channel.purge(queue)
        assert resident(serve) > idle + count * SIZE * 3 // 4
        until(lambda: resident(serve) < idle + count * SIZE // 2)


def test_paged_deliveries_are_dead_lettered_with_their_bodies(serve: Serving) -> None:
    with login(serve.port) as connection:
        channel = connection.channel()
        grave = channel.queue("grave", exclusive=False)
        to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
        queue = channel.queue("dying", exclusive=False, arguments=to_grave)
        publish(serve, queue, 1)
        holder = connection.channel()
        holder.consume(queue)
        held = [holder.next() for _ in range(COUNT)]
        until(lambda: api(serve).get("queues", "/", queue)["memory"] < LIMIT)
        holder.send(Basic.Nack(delivery_tag=held[-1].method.delivery_tag, multiple=True, requeue=False))
        channel.consume(grave, no_ack=True)
        for number in range(COUNT):
            assert channel.next().body == body(number)


def test_many_small_deliveries_take_next_to_no_memory_and_come_back(tmp_path: Path) -> None:
    count, many = 20_000, 1_000
    with serving(tmp_path, "--memory-limit", "4MB") as serve, login(serve.port) as connection:
        channel = connection.channel()
        queue = channel.queue("small", exclusive=False)
        holder = connection.channel()
        holder.consume(queue)
        held: list[Content] = []
        for number in range(count):
            channel.publish("", queue, b"%d" % number, Basic.Properties(delivery_mode=1 + number % 2))
            if number % many == many - 1:
                held += [holder.next() for _ in range(many)]
        assert numbers(held) == list(range(count))
        # One object per message would take more.
        until(lambda: api(serve).get("queues", "/", queue)["memory"] < count * 100)
        # Some are acknowledged, one by one and together, some are rejected, and the rest returns.
        holder.send(Basic.Ack(delivery_tag=held[7_000].method.delivery_tag))
        holder.send(Basic.Ack(delivery_tag=held[4_999].method.delivery_tag, multiple=True))
        holder.send(Basic.Nack(delivery_tag=held[5_999].method.delivery_tag, multiple=True, requeue=False))
        holder.close()
        again = connection.channel()
        again.consume(queue, no_ack=True)
        left = [number for number in range(6_000, count) if number != 7_000]
        messages = [again.next() for _ in left]
        assert numbers(messages) == left
        assert all(message.method.redelivered for message in messages)
        assert [message.properties.delivery_mode for message in messages] == [1 + number % 2 for number in left]
        until(lambda: api(serve).counts(queue) == (0, 0))
        assert api(serve).get("queues", "/", queue)["memory"] == 0


def api(serve: Serving) -> API:
    return API(serve.http_url)


@pytest.mark.slow
def test_what_was_paged_for_want_of_memory_alone_is_gone_after_a_restart(tmp_path: Path) -> None:
    def declare(channel: WireChannel) -> str:
        return channel.queue("q", durable=True, exclusive=False)

    with serving(tmp_path, "--memory-limit", "20MiB") as serve, login(serve.port) as connection:
        channel = connection.channel()
        publish(serve, declare(channel), 1)
        assert channel.ready("q") == COUNT
        serve.process.terminate()
        serve.process.wait()
    with serving(tmp_path) as serve, login(serve.port) as connection:
        assert connection.channel().ready("q") == 0
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 200_000_000


def test_freed_memory_goes_back_to_the_system_a_little_at_a_time() -> None:
    account = MemoryAccount()
    freed = FreedMemory(account)
    before = weighed()
    # Between objects that stay, so that the C library does not return the memory by itself.
    held = [bytes(SIZE) for _ in range(COUNT)]
    account.charge("ready", SIZE * COUNT)
    stay = held[::50]
    for place in range(COUNT):
        if place % 50:
            held[place] = b""
            account.charge("ready", -SIZE)
            freed.look()
            assert weighed() - before - account.total < 2 * SLACK
    assert len(stay) == COUNT // 50


def test_memory_of_many_objects_that_are_gone_goes_back_though_little_was_held() -> None:
    freed = FreedMemory(MemoryAccount())
    objects = [bytearray(600) for _ in range(FEWER)]  # larger than Python's own allocator for small objects takes
    freed.return_at_intervals(0)
    stay = objects[::100]
    before = weighed()
    del objects
    freed.return_at_intervals(0)
    assert weighed() < before - FEWER * 300
    assert len(stay) == FEWER // 100
