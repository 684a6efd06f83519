"""RabbitMQ's pages on length limits, time to live, leases and dead lettering, beside the common cases."""

import time
from collections.abc import Callable

import pytest
from tests.conformance.operator import Operator
from tests.waiting import punctually, until
from tests.wire import Basic, Queue, WireChannel, WireConnection

Unique = Callable[[str], str]


# --- length ---


def test_what_one_queue_refuses_others_get_and_the_publisher_is_told(
    channel: WireChannel, queue: str, unique: Unique
) -> None:
    full = channel.queue(unique("full"), arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    exchange = channel.exchange(unique("exchange"), "fanout")
    channel.bind(queue, exchange)
    channel.bind(full, exchange)
    channel.confirm_select()
    for body in (b"1", b"2"):
        channel.publish(exchange, "", body)
    first, second = channel.take(2)
    assert (type(first), first.delivery_tag) == (Basic.Ack, 1)
    assert (type(second), second.delivery_tag) == (Basic.Nack, 2)
    assert channel.bodies(queue) == [b"1", b"2"]
    assert channel.bodies(full) == [b"1"]
    assert channel.is_silent()


def test_who_publishes_over_http_is_told_what_a_queue_refuses(
    channel: WireChannel, operator: Operator, queue: str, unique: Unique
) -> None:
    full = channel.queue(unique("full"), arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    exchange = channel.exchange(unique("exchange"), "fanout")
    message = {"routing_key": "", "payload": "over http", "payload_encoding": "string", "properties": {}}
    channel.bind(full, exchange)
    for copies in ([], [b"over http"]):
        answer = operator.ask("POST", "exchanges", "/", exchange, "publish", json=message)
        reason = "rejected Unable to publish message. Check queue limits."
        assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "reason": reason})
        assert channel.bodies(queue) == copies
        channel.bind(queue, exchange)


def test_whichever_limit_is_hit_first_counts(channel: WireChannel, unique: Unique) -> None:
    queue = channel.queue(unique("both"), arguments={"x-max-length": 3, "x-max-length-bytes": 10})
    for body in (b"a", b"b", b"c", b"d"):
        channel.publish("", queue, body)
    assert channel.bodies(queue) == [b"b", b"c", b"d"]
    for body in (b"12345", b"67890", b"x"):
        channel.publish("", queue, body)
    assert channel.bodies(queue) == [b"67890", b"x"]


def test_octets_are_those_of_bodies_alone(channel: WireChannel, unique: Unique) -> None:
    queue = channel.queue(unique("bytes"), arguments={"x-max-length-bytes": 10})
    for body in (b"12345", b"67890"):
        channel.publish("", queue, body, Basic.Properties(headers={"long": "x" * 500}, content_type="text/plain"))
    assert channel.bodies(queue) == [b"12345", b"67890"]


def test_what_is_unacknowledged_does_not_count(channel: WireChannel, unique: Unique) -> None:
    queue = channel.queue(unique("short"), arguments={"x-max-length": 2})
    for body in (b"1", b"2"):
        channel.publish("", queue, body)
        assert channel.get(queue, no_ack=False) is not None
    for body in (b"3", b"4"):
        channel.publish("", queue, body)
    until(lambda: channel.ready(queue) == 2)
    channel.send(Basic.Nack(0, multiple=True, requeue=True))
    assert channel.bodies(queue) == [b"3", b"4"]


# --- time to live ---


def test_a_message_expires_in_each_queue_by_itself(channel: WireChannel, queue: str, unique: Unique) -> None:
    brief = channel.queue(unique("brief"), arguments={"x-message-ttl": 50})
    exchange = channel.exchange(unique("exchange"), "fanout")
    channel.bind(queue, exchange)
    channel.bind(brief, exchange)
    channel.confirm_select()
    channel.publish(exchange, "", b"kept")
    channel.wait_for_confirms()
    time.sleep(0.2)
    assert channel.bodies(brief) == []
    assert channel.bodies(queue) == [b"kept"]


@pytest.mark.parametrize(("of_queue", "of_message"), [(50, "60000"), (60000, "50")])
def test_the_lower_time_to_live_counts(channel: WireChannel, unique: Unique, of_queue: int, of_message: str) -> None:
    queue = channel.queue(unique("brief"), arguments={"x-message-ttl": of_queue})
    channel.confirm_select()
    channel.publish("", queue, b"brief", Basic.Properties(expiration=of_message))
    channel.wait_for_confirms()
    time.sleep(0.2)
    assert channel.bodies(queue) == []


def test_what_is_put_back_keeps_its_expiry(connection: WireConnection, unique: Unique) -> None:
    def trial() -> None:
        channel = connection.channel()
        queue = channel.queue(unique("brief"), arguments={"x-message-ttl": 300})
        channel.publish("", queue, b"brief")
        assert channel.get(queue, no_ack=False) is not None
        assert channel.is_silent(0.45)
        channel.send(Basic.Nack(1, requeue=True))
        assert channel.bodies(queue) == []

    punctually(0.7, trial)


# --- leases ---


@pytest.mark.slow
@pytest.mark.parametrize("use", ["get", "declare"])
def test_using_a_queue_renews_its_lease(
    connection: WireConnection, operator: Operator, unique: Unique, use: str
) -> None:
    lease = {"x-expires": 800}

    def trial() -> None:
        name, channel = unique("leased"), connection.channel()
        channel.queue(name, exclusive=False, arguments=lease)
        for _ in range(4):
            assert channel.is_silent(0.4)
            assert operator.finds_queue(name)
            if use == "get":
                assert channel.get(name) is None
            else:
                channel.queue(name, exclusive=False, arguments=lease)
        until(lambda: not operator.finds_queue(name))

    punctually(0.8, trial)  # after a delay the lease is over


def test_publishing_does_not_renew_a_lease(channel: WireChannel, operator: Operator, unique: Unique) -> None:
    name = channel.queue(unique("leased"), exclusive=False, arguments={"x-expires": 600})

    def is_gone() -> bool:
        channel.publish("", name)
        return not operator.finds_queue(name)

    until(is_gone)


def test_what_was_in_a_queue_whose_lease_ends_is_not_dead_lettered(
    channel: WireChannel, operator: Operator, queue: str, unique: Unique
) -> None:
    arguments = {"x-expires": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    name = channel.queue(unique("leased"), exclusive=False, arguments=arguments)
    channel.publish("", name)
    until(lambda: not operator.finds_queue(name))
    assert channel.is_silent(0.2)
    assert channel.bodies(queue) == []


# --- dead letters ---


def test_purging_and_deleting_dead_letter_nothing(channel: WireChannel, queue: str, unique: Unique) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    name = channel.queue(unique("source"), arguments=arguments)
    channel.publish("", name)
    assert channel.purge(name) == 1
    channel.publish("", name)
    assert channel.call(Queue.Delete(queue=name)).message_count == 1
    assert channel.bodies(queue) == []


def test_without_its_exchange_a_dead_letter_is_dropped(channel: WireChannel, unique: Unique) -> None:
    name = channel.queue(unique("source"), arguments={"x-dead-letter-exchange": unique("missing")})
    channel.publish("", name)
    assert channel.get(name, no_ack=False) is not None
    channel.send(Basic.Reject(1, requeue=False))
    assert channel.ready(name) == 0


def test_a_dead_letter_has_no_expiration_of_its_own_any_more(channel: WireChannel, queue: str, unique: Unique) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    name = channel.queue(unique("source"), arguments=arguments)
    channel.publish("", name, b"brief", Basic.Properties(expiration="50"))
    until(lambda: channel.ready(queue) == 1)
    message = channel.get(queue)
    assert message is not None
    assert message.properties.expiration is None
    assert message.headers["x-death"][0]["original-expiration"] == "50"


def test_a_policys_dead_letter_exchange_gives_way_to_the_arguments(
    channel: WireChannel, operator: Operator, queue: str, unique: Unique
) -> None:
    other = channel.queue(unique("other"))
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    name = channel.queue(unique("source"), arguments=arguments)
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": other}
    operator.set_policy("dead letters", f"^{name}$", definition, apply_to="queues")
    channel.publish("", name, b"refused")
    assert channel.get(name, no_ack=False) is not None
    channel.send(Basic.Reject(1, requeue=False))
    until(lambda: channel.ready(queue) == 1)
    assert channel.bodies(other) == []
