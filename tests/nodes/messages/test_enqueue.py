"""Publishing to queues of remote homes: every kind of route, receipts by message, and broken links."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker
from tests.brokers import bind, bodies, declare, queue_of, with_channel
from tests.nodes.homes import config_of, homes, in_loop, peers_of, propose, started, stopped, until
from tests.wire import Basic, Content, WireChannel, login

from jumpmq.amqp.properties import Properties
from jumpmq.broker.upkeep import slices
from jumpmq.nodes import entry
from jumpmq.nodes.timing import Timing
from jumpmq.nodes.transport.records import LOG
from jumpmq.topology import Arguments, DeclareExchange, DeclareQueue, ExchangeDefinition, SetPolicy


@in_loop
async def test_every_message_arrives_in_order_and_is_confirmed(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        for place, broker in enumerate(brokers):
            await declare(broker, f"q{place}")
            await bind(broker, "amq.fanout", f"q{place}")

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            for number in range(50):
                channel.basic_publish("amq.fanout", "", b"%d" % number, pika.BasicProperties(delivery_mode=2))
                channel.basic_publish("", f"q{number % 3}", b"direct %d" % number)

        await with_channel(brokers[1], work)
        for place, broker in enumerate(brokers):
            found = bodies(broker, f"q{place}")
            assert [one for one in found if not one.startswith(b"d")] == [b"%d" % number for number in range(50)]
            assert [one for one in found if one.startswith(b"d")] == [
                b"direct %d" % number for number in range(50) if number % 3 == place
            ]


@in_loop
async def test_what_was_confirmed_is_on_the_home_s_disk(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "q")

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            for number in range(100):
                channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))

        await with_channel(brokers[0], work)
        await stopped(brokers[1])
        again = await started(config_of(2, 2, tmp_path))
        assert bodies(again, "q") == [b"%d" % number for number in range(100)]


@in_loop
async def test_a_home_that_is_short_of_disk_holds_up_its_publishers_everywhere_and_no_others(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        for broker in brokers:
            await declare(broker, f"q{broker.topology.home}")
        short = brokers[2]
        short.alarms.disk_free_limit = 1 << 60
        short.alarms.look()
        confirmed: list[str] = []

        def publish(queue: str) -> Callable[[Any], None]:
            def work(channel: Any) -> None:
                channel.confirm_delivery()
                for _ in range(3):
                    channel.basic_publish("", queue, b"m", pika.BasicProperties(delivery_mode=2))
                    confirmed.append(queue)

            return work

        await with_channel(brokers[0], publish("q2"))
        held = asyncio.ensure_future(with_channel(brokers[0], publish("q3")))
        await until(lambda: queue_of(short, "q3").message_count == 1)
        await asyncio.sleep(0.3)
        assert confirmed == ["q2"] * 3
        short.alarms.disk_free_limit = 0
        short.alarms.look()
        await held
        assert confirmed == ["q2"] * 3 + ["q3"] * 3


@in_loop
async def test_a_home_that_is_short_holds_up_no_confirms_of_the_same_channel_for_other_homes(tmp_path: Path) -> None:
    """A home short of memory delays only its own confirms, not those of local, transient or unroutable messages."""
    async with homes(3, tmp_path) as brokers:
        for broker in brokers:
            await declare(broker, f"q{broker.topology.home}")
        short = brokers[2]
        short.alarms.disk_free_limit = 1 << 60
        short.alarms.look()
        tags: dict[str, set[int]] = {"q1": set(), "q2": set(), "q3": set(), "none": set()}
        confirmed: set[int] = set()
        may_end = asyncio.Event()
        loop = asyncio.get_running_loop()

        def take(channel: WireChannel) -> None:
            event = channel.next()
            if isinstance(event, Content):
                assert event.method.routing_key == "none"
                return
            assert isinstance(event, Basic.Ack) and event.delivery_tag not in confirmed
            upto = range(1, event.delivery_tag + 1) if event.multiple else [event.delivery_tag]
            confirmed.update(upto)

        def work() -> None:
            with login(brokers[0].port) as connection:
                channel = connection.channel()
                channel.confirm_select()
                published = b""
                for number in range(90):
                    queue = list(tags)[number % 4 if number else 2]  # the home in short supply first
                    tags[queue].add(number + 1)
                    mode = Basic.Properties(delivery_mode=1 + number % 2)
                    published += channel.publication("", queue, b"m", mode, mandatory=True)
                    if not number % 10:
                        connection.send(published)
                        published = b""
                connection.send(published)
                while not confirmed >= tags["q1"] | tags["q2"] | tags["none"]:
                    take(channel)
                assert not confirmed & tags["q3"]
                loop.call_soon_threadsafe(may_end.set)
                while len(confirmed) < 90:
                    take(channel)
                (sent,) = [one for one in brokers[0].connections if one.channels]
                confirms = sent.channels[1].confirms
                assert confirms is not None
                assert confirms.unanswered == 0
                assert sent.channels[1].tally.confirm == 90

        client = asyncio.create_task(asyncio.to_thread(work))
        await may_end.wait()
        short.alarms.disk_free_limit = 0
        short.alarms.look()
        await client


@in_loop
async def test_a_queue_that_refuses_has_only_those_messages_nacked() -> None:
    async with homes(2, durable=False) as brokers:
        await declare(brokers[1], "full", {"x-max-length": 2, "x-overflow": "reject-publish"})
        await declare(brokers[1], "free")

        def work(channel: Any) -> list[bool]:
            channel.confirm_delivery()
            outcomes = []
            for queue in ("full", "free", "full", "full", "free"):
                try:
                    channel.basic_publish("", queue, b"m")
                    outcomes.append(True)
                except pika.exceptions.NackError:
                    outcomes.append(False)
            return outcomes

        assert await with_channel(brokers[0], work) == [True, True, True, False, True]


@in_loop
async def test_a_policy_that_refuses_counts_as_well() -> None:
    async with homes(2, durable=False) as brokers:
        await declare(brokers[1], "full")
        await propose(brokers[0], SetPolicy("/", "p", "^full", {"max-length": 1, "overflow": "reject-publish"}))

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "full", b"1")
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "full", b"2")

        await with_channel(brokers[0], work)


@in_loop
async def test_a_home_that_is_down_has_its_messages_nacked_and_others_go_on(tmp_path: Path) -> None:
    async with homes(3, tmp_path) as brokers:
        await declare(brokers[1], "down")
        await declare(brokers[2], "up")
        await stopped(brokers[1])

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "up", b"1")
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "down", b"2")
            channel.basic_publish("", "up", b"3")

        await with_channel(brokers[0], work)
        assert bodies(brokers[2], "up") == [b"1", b"3"]
        again = await started(config_of(2, 3, tmp_path))
        await with_channel(brokers[0], lambda channel: channel.basic_publish("", "down", b"4"))
        await until(lambda: bodies(again, "down") == [b"4"])


@in_loop
async def test_the_other_ways_to_a_queue() -> None:
    """Messages reach remote queues by bindings of exchanges, alternate exchanges, CC and hash exchanges."""
    async with homes(2, durable=False) as brokers:
        for name in ("a", "b", "c"):
            await declare(brokers[1], name)
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "front", "direct")))
        alternate = Arguments.of({"alternate-exchange": "amq.fanout"})
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "picky", "direct", arguments=alternate)))
        await bind(brokers[0], "front", "amq.topic", "x.y", kind="exchange")
        await bind(brokers[0], "amq.topic", "a", "x.*")
        await bind(brokers[0], "amq.fanout", "b")
        await propose(brokers[0], DeclareExchange(ExchangeDefinition("/", "ring", "x-consistent-hash")))
        await bind(brokers[0], "ring", "c", "1")

        def work(channel: Any) -> list[str]:
            channel.confirm_delivery()
            channel.basic_publish("front", "x.y", b"through")
            channel.basic_publish("picky", "nothing", b"alternate")
            channel.basic_publish("ring", "any", b"hashed")
            channel.basic_publish("", "a", b"copied", pika.BasicProperties(headers={"CC": ["b"], "BCC": ["c"]}))
            with pytest.raises(pika.exceptions.UnroutableError):
                channel.basic_publish("front", "no", b"lost", mandatory=True)
            channel.basic_publish("", "a", b"mandatory", mandatory=True)
            return []

        await with_channel(brokers[0], work)
        assert bodies(brokers[1], "a") == [b"through", b"copied", b"mandatory"]
        assert bodies(brokers[1], "b") == [b"alternate", b"copied"]
        assert bodies(brokers[1], "c") == [b"hashed", b"copied"]


@in_loop
async def test_a_message_s_own_expiry_counts_on_at_its_home() -> None:
    async with homes(2, durable=False) as brokers:
        await declare(brokers[1], "q")

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"short", pika.BasicProperties(expiration="80"))
            channel.basic_publish("", "q", b"long", pika.BasicProperties(expiration="60000"))

        await with_channel(brokers[0], work)
        await until(lambda: bodies(brokers[1], "q") == [b"long"])
        assert bodies(brokers[1], "q") == [b"long"]


@in_loop
async def test_transactions_publish_to_several_homes() -> None:
    async with homes(3, durable=False) as brokers:
        for place, broker in enumerate(brokers):
            await declare(broker, f"q{place}")

        def work(channel: Any) -> None:
            channel.tx_select()
            for place in range(3):
                channel.basic_publish("", f"q{place}", b"kept")
            channel.tx_commit()
            channel.basic_publish("", "q1", b"rolled back")
            channel.tx_rollback()

        await with_channel(brokers[0], work)
        assert [bodies(broker, f"q{place}") for place, broker in enumerate(brokers)] == [[b"kept"]] * 3


@in_loop
async def test_dead_letters_go_to_other_homes(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "letters")
        dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters", "x-message-ttl": 50}
        await declare(brokers[0], "dying", dying)

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            for number in range(20):
                channel.basic_publish("", "dying", b"%d" % number, pika.BasicProperties(delivery_mode=2))

        await with_channel(brokers[0], work)
        await until(lambda: len(bodies(brokers[1], "letters")) == 20)
        assert bodies(brokers[1], "letters") == [b"%d" % number for number in range(20)]


@in_loop
async def test_dead_letters_wait_for_a_home_that_is_down(tmp_path: Path) -> None:
    async with homes(2, tmp_path) as brokers:
        await declare(brokers[1], "letters")
        dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters", "x-message-ttl": 20}
        await declare(brokers[0], "dying", dying)
        await stopped(brokers[1])

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "dying", b"letter", pika.BasicProperties(delivery_mode=2))

        await with_channel(brokers[0], work)
        await asyncio.sleep(0.3)
        again = await started(config_of(2, 2, tmp_path))
        await until(lambda: bodies(again, "letters"))
        assert bodies(again, "letters") == [b"letter"]


@in_loop
async def test_dead_letters_of_clients_of_other_homes_are_sent_while_a_home_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with homes(2, tmp_path) as brokers:
        first, second = brokers
        await declare(first, "letters")
        await declare(second, "dying", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"})

        def publish(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "dying", b"letter", pika.BasicProperties(delivery_mode=2))

        def reject(channel: Any) -> None:
            method, _, _ = channel.basic_get("dying")
            channel.basic_reject(method.delivery_tag, requeue=False)

        await with_channel(first, publish)
        await stopped(second)
        joins, decided = asyncio.Event(), slices.decided

        async def held(pending: Any) -> None:
            await joins.wait()
            await decided(pending)

        monkeypatch.setattr(entry, "decided", held)
        starting = asyncio.ensure_future(started(config_of(2, 2, tmp_path)))
        try:
            await until(lambda: len(first.running_homes) == 2)
            async with asyncio.timeout(10):
                while True:
                    with suppress(ConnectionClosedByBroker):  # the home has started, without queues yet
                        await with_channel(first, reject)
                        break
            await until(lambda: bodies(first, "letters"))
        finally:
            joins.set()
            await starting
        assert bodies(first, "letters") == [b"letter"]
        assert "are lost" not in caplog.text


@in_loop
async def test_direct_replies_find_their_way_back() -> None:
    """Direct replies reach a client at another home; a reply to a closed channel is dropped."""
    async with homes(3, durable=False) as brokers:
        await declare(brokers[0], "requests")
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def request(channel: Any) -> bytes:
            answers: list[bytes] = []
            channel.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(got[3]), auto_ack=True)
            channel.basic_publish("", "requests", b"ping", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
            loop.call_soon_threadsafe(asked.set)
            while not answers:
                channel.connection.process_data_events(0.05)
            return answers[0]

        asking = asyncio.create_task(with_channel(brokers[1], request))
        await asked.wait()
        await until(lambda: queue_of(brokers[0], "requests").ready_count)
        sent = queue_of(brokers[0], "requests").peek(1, 10)[0]
        address = Properties.parse(sent.properties).reply_to
        assert address is not None

        def answer(channel: Any) -> None:
            channel.queue_declare(address, passive=True)
            channel.basic_publish("", address, b"pong")

        await with_channel(brokers[2], answer)
        assert await asking == b"pong"

        def late(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", address, b"late")
            with pytest.raises(pika.exceptions.UnroutableError):
                channel.basic_publish("", "amq.rabbitmq.reply-to.9.x", b"nowhere", mandatory=True)

        await with_channel(brokers[2], late)


@in_loop
async def test_who_publishes_faster_than_a_home_takes_is_not_read(tmp_path: Path) -> None:
    async with homes(3, durable=False) as brokers:
        await declare(brokers[1], "slow")
        await declare(brokers[2], "quick")
        stalled = peers_of(brokers[1]).links.to(1)
        assert stalled is not None
        stalled._transport.pause_reading()
        body = bytes(1 << 20)

        def flood(channel: Any) -> None:
            for _ in range(200):
                channel.basic_publish("", "slow", body)

        flooding = asyncio.create_task(with_channel(brokers[0], flood))
        await until(lambda: any(one.reading.waits for one in brokers[0].connections))

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "quick", b"m")

        await with_channel(brokers[0], work)
        assert brokers[0].memory.total < 100 << 20
        stalled._transport.resume_reading()
        await flooding
        await until(lambda: queue_of(brokers[1], "slow").ready_count == 200)
        await until(lambda: brokers[0].memory.total < 1 << 20)


@in_loop
async def test_messages_for_a_queue_that_is_not_known_yet_wait_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with homes(2, tmp_path, timing=Timing(unknown_queue=0.1)) as (first, second):
        links = peers_of(second).links
        hear, held = links.handlers[LOG], list[bytes]()
        links.handlers[LOG] = lambda link, payload: held.append(bytes(payload))
        with first.turns.turn():
            first.topology.propose(DeclareQueue(second.topology.define_queue("/", "q", True)))
        await until(lambda: "q" in first.topology.vhosts["/"].declared)

        def work(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"1")

        publishing = asyncio.ensure_future(with_channel(first, work))
        await until(lambda: "messages of home 1 have waited 0.1 s for a queue" in caplog.text)
        links.handlers[LOG] = hear
        link = links.to(1)
        assert link is not None
        with second.turns.turn():
            for payload in held:
                hear(link, memoryview(payload))
        await publishing
        assert bodies(second, "q") == [b"1"]
