"""Exchanges of type ``x-delayed-message`` route a message with an ``x-delay`` header when due, and once."""

import time
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.broker.holding.connecting import connected, refused
from tests.http.api import API
from tests.several_processes import running
from tests.waiting import until

from jumpmq.hashing import HashRing
from jumpmq.testing import JumpMQ

LONG = 3_600_000
"""A delay in milliseconds, longer than every test."""


def declare(channel: BlockingChannel, name: str, kind: str = "direct", durable: bool = True, **arguments: Any) -> None:
    given = {"x-delayed-type": kind} | {key.replace("_", "-"): value for key, value in arguments.items()}
    channel.exchange_declare(name, "x-delayed-message", durable=durable, arguments=given)


def queue(channel: BlockingChannel, name: str, exchange: str, key: str = "k", **arguments: Any) -> str:
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_bind(name, exchange, key)
    return name


def publish(
    channel: BlockingChannel, exchange: str, delay: Any, body: str = "", key: str = "k", **properties: Any
) -> None:
    headers = {} if delay is None else {"x-delay": delay}
    sent = pika.BasicProperties(headers=headers, **({"delivery_mode": 2} | properties))
    channel.basic_publish(exchange, key, body.encode(), sent, mandatory=True)


def delayed(channel: BlockingChannel, exchange: str) -> int:
    return int(channel.queue_declare(f"amq.delayed.{exchange}", passive=True).method.message_count)


def got(channel: BlockingChannel, name: str, count: int = 1) -> list[tuple[Any, Any, str]]:
    """Wait for so many messages of a queue; return the messages."""
    found: list[tuple[Any, Any, str]] = []

    def take() -> bool:
        method, properties, body = channel.basic_get(name, auto_ack=True)
        if method is not None:
            found.append((method, properties, body.decode()))
        return len(found) == count

    until(take)
    return found


def test_messages_come_in_the_order_in_which_they_are_due(broker: JumpMQ, channel: BlockingChannel) -> None:
    declare(channel, "order")
    queue(channel, "ordered", "order")
    began = time.time()
    with connected(broker) as connection:
        unconfirmed = connection.channel()  # without a wait between the publishes
        for delay in (900, 300, 600):
            publish(unconfirmed, "order", delay, str(delay))
        publish(unconfirmed, "order", None, "at once")
    found = got(channel, "ordered", 4)
    assert [body for _, _, body in found] == ["at once", "300", "600", "900"]
    assert time.time() - began >= 0.9
    assert [properties.headers for _, properties, _ in found[1:]] == [{"x-delay": -delay} for delay in (300, 600, 900)]
    assert {(method.exchange, method.routing_key) for method, _, _ in found} == {("order", "k")}


@pytest.mark.parametrize("delay", [0, -5, 2**32, "soon", True, ["x"]])
def test_what_is_no_delay_delays_nothing(channel: BlockingChannel, delay: int | str | bool | list[str]) -> None:
    declare(channel, "none")
    queue(channel, "undelayed", "none")
    publish(channel, "none", delay)
    (found,) = got(channel, "undelayed")
    assert found[1].headers == {"x-delay": delay}


def test_a_delayed_message_is_confirmed_and_not_returned_and_its_own_expiry_begins_when_it_is_due(
    channel: BlockingChannel,
) -> None:
    declare(channel, "expiring", alternate_exchange="amq.fanout")
    channel.queue_declare("aside", durable=True)
    channel.queue_bind("aside", "amq.fanout")
    queue(channel, "mortal", "expiring")
    publish(channel, "expiring", 300, "waits", expiration="60000", delivery_mode=1)  # or pika raises UnroutableError
    assert channel.queue_declare("aside", passive=True).method.message_count == 0
    ((_, properties, body),) = got(channel, "mortal")
    assert (properties.expiration, properties.delivery_mode, body) == ("60000", 1, "waits")
    publish(channel, "expiring", 50, "gone", expiration="0")
    publish(channel, "expiring", 100, "left")
    assert got(channel, "mortal")[0][2] == "left"


def test_what_reaches_no_queue_when_it_is_due_goes_to_the_alternate_exchange_or_is_dropped(
    channel: BlockingChannel, api: API
) -> None:
    declare(channel, "lost", alternate_exchange="amq.direct")
    queue(channel, "found", "amq.direct")
    publish(channel, "lost", 20, "alternate")
    assert got(channel, "found")[0][2] == "alternate"
    dropped = api.get("overview")["message_stats"].get("drop_unroutable", 0)
    publish(channel, "lost", 50, "nowhere", key="none")
    until(lambda: api.get("overview")["message_stats"].get("drop_unroutable", 0) > dropped)
    assert delayed(channel, "lost") == 0


def test_what_an_exchange_delays_goes_with_it(channel: BlockingChannel, broker: JumpMQ) -> None:
    declare(channel, "gone")
    queue(channel, "never", "gone")
    publish(channel, "gone", LONG)
    assert delayed(channel, "gone") == 1
    channel.exchange_delete("gone")
    assert refused(broker, lambda other: other.queue_declare("amq.delayed.gone", passive=True))[0] == 404
    declare(channel, "gone")
    assert delayed(channel, "gone") == 0
    channel.exchange_delete("gone", if_unused=True)  # the exchange's own queue does not count as use


@pytest.mark.parametrize("kind", ["x-consistent-hash", pytest.param("x-modulus-hash", marks=pytest.mark.slow)])
def test_delays_keep_hashing_also_over_a_restart(broker: JumpMQ, kind: str) -> None:
    """A ring made uneven by a removal routes messages with and without delay as before, also after a restart."""
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, kind, kind)
        names = [queue(channel, f"{kind}-{number}", kind, "1") for number in range(5)]
        channel.queue_unbind(names[1], kind, "1")
        for number in range(40):
            publish(channel, kind, 1, f"d{number}", key=f"key {number}")
            publish(channel, kind, None, f"n{number}", key=f"key {number}")
        publish(channel, kind, LONG, "stays")
        bound = [*names[:1], *names[2:]]
        until(lambda: sum(channel.queue_declare(one, passive=True).method.message_count for one in bound) == 80)
    broker.stop()
    broker.start()
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(40):
            publish(channel, kind, 1, f"r{number}", key=f"key {number}")
        places: dict[str, set[str]] = {}
        for one in bound:
            while (answer := channel.basic_get(one, auto_ack=True))[0] is not None:
                places.setdefault(answer[2].decode()[1:], set()).add(one)
        until(lambda: not delayed(channel, kind) - 1)
        for one in bound:
            while (answer := channel.basic_get(one, auto_ack=True))[0] is not None:
                places.setdefault(answer[2].decode()[1:], set()).add(one)
        assert len(places) == 40
        assert all(len(found) == 1 for found in places.values())
        if kind == "x-consistent-hash":
            ring = HashRing()
            for name in names:
                ring.add(name, 1)
            ring.remove(names[1])
            assert {number: {ring.route(f"key {number}".encode())} for number in places} == places
        channel.exchange_delete(kind)


def test_messages_are_delayed_behind_another_exchange_and_in_transactions_and_as_dead_letters(
    channel: BlockingChannel, broker: JumpMQ
) -> None:
    declare(channel, "behind", "fanout")
    queue(channel, "last", "behind")
    queue(channel, "beside", "amq.topic", "#")
    channel.exchange_bind("behind", "amq.topic", "#")
    publish(channel, "amq.topic", 200, "both")
    assert got(channel, "beside")[0][2] == "both"
    assert got(channel, "last")[0][1].headers == {"x-delay": -200}

    with connected(broker) as connection:
        transaction = connection.channel()
        transaction.tx_select()
        publish(transaction, "behind", 1, "rolled back")
        transaction.tx_rollback()
        publish(transaction, "behind", 1, "committed")
        transaction.tx_commit()
    assert got(channel, "last")[0][2] == "committed"

    dying = {"x-dead-letter-exchange": "behind", "x-message-ttl": 1}
    queue(channel, "dying", "amq.direct", "dies", **dying)
    channel.exchange_declare("plain", "direct")
    channel.queue_bind("dying", "plain", "k")
    publish(channel, "plain", 1, "dead")
    ((_, properties, body),) = got(channel, "last")
    assert (body, properties.headers["x-delay"], properties.headers["x-death"][0]["queue"]) == ("dead", -1, "dying")
    channel.queue_unbind("beside", "amq.topic", "#")


def test_nobody_but_the_exchange_uses_its_queue(broker: JumpMQ, channel: BlockingChannel, api: API) -> None:
    declare(channel, "own")
    queue(channel, "owned", "own")
    publish(channel, "own", LONG)
    where = "queue 'amq.delayed.own' in vhost '/'"
    for act in (
        lambda other: other.basic_get("amq.delayed.own"),
        lambda other: other.basic_consume("amq.delayed.own", print),
        lambda other: other.basic_consume("amq.delayed.own", print, arguments={"x-consumer-group": "g"}),
    ):
        code, text = refused(broker, act)
        assert code in (403, 405, 406)
        assert where in text
    assert refused(broker, lambda other: other.queue_delete("amq.delayed.own")) == (
        403,
        f"ACCESS_REFUSED - {where} goes with exchange 'own'",
    )
    assert refused(broker, lambda other: other.queue_bind("amq.delayed.own", "amq.fanout"))[0] == 403
    assert refused(broker, lambda other: other.queue_declare("amq.delayed.other", durable=True))[0] == 403
    assert api.request("DELETE", "queues", "/", "amq.delayed.own").status_code in (400, 401, 403)
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert api.request("POST", "queues", "/", "amq.delayed.own", "get", json=body).status_code >= 400
    # a message sent past the exchange is unroutable
    unroutable = pika.BasicProperties(headers={"x-delay": 1})
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "amq.delayed.own", b"past", unroutable, mandatory=True)
    queue(channel, "source", "amq.direct", "source")
    publish(channel, "amq.direct", None, "moved", key="source")
    moved = api.request("POST", "queues", "/", "source", "contents", "move", json={"queue": "amq.delayed.own"})
    assert moved.json()["moved"] == 0
    assert delayed(channel, "own") == 1


def test_an_exchange_that_is_deleted_automatically_takes_what_it_delays_along(
    channel: BlockingChannel, broker: JumpMQ, api: API
) -> None:
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare("brief", "x-delayed-message", durable=True, auto_delete=True, arguments=arguments)
    queue(channel, "brief-queue", "brief")
    publish(channel, "brief", LONG)
    channel.queue_unbind("brief-queue", "brief", "k")
    assert refused(broker, lambda other: other.exchange_declare("brief", passive=True))[0] == 404
    assert refused(broker, lambda other: other.queue_declare("amq.delayed.brief", passive=True))[0] == 404


def test_its_queue_counts_among_those_of_a_virtual_host(broker: JumpMQ, api: API) -> None:
    api.request("PUT", "vhosts", "narrow").raise_for_status()
    api.request("PUT", "permissions", "narrow", "guest", json={"configure": ".*", "write": ".*", "read": ".*"})
    api.request("PUT", "vhost-limits", "narrow", "max-queues", json={"value": 1}).raise_for_status()
    with connected(broker, virtual_host="narrow") as connection:
        declare(connection.channel(), "one")
        declare(connection.channel(), "one")
        with pytest.raises(pika.exceptions.ChannelClosed) as error:
            declare(connection.channel(), "two")
    assert "queue limit in vhost 'narrow' (1) is reached" in error.value.reply_text
    with connected(broker, virtual_host="narrow") as connection:
        connection.channel().exchange_delete("one")
    api.request("DELETE", "vhosts", "narrow").raise_for_status()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        (
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-type' cannot be 'x-delayed-message': bind an exchange of that type behind",
        ),
        (
            {"x-delayed-type": "x-message-deduplication", "x-cache-size": 5},
            "Invalid argument, 'x-delayed-type' cannot be 'x-message-deduplication': bind an exchange of that",
        ),
        ({"x-delayed-type": "none"}, "unknown exchange type 'none'"),
        ({"x-delayed-type": 5}, "invalid type 'signedint' for arg 'x-delayed-type' in exchange 'bad' in vhost '/'"),
        ({"x-delayed-type": "x-consistent-hash", "hash-function": "md5"}, "Unsupported hash-function: md5"),
    ],
)
def test_exchanges_that_cannot_be(broker: JumpMQ, arguments: dict[str, Any], text: str) -> None:
    code, found = refused(broker, lambda other: other.exchange_declare("bad", "x-delayed-message", arguments=arguments))
    assert code == 406
    assert text in found
    code, found = refused(broker, lambda other: other.queue_declare("bad", arguments={"x-queue-type": "delayed"}))
    assert (code, "unsupported queue type 'delayed'" in found) == (406, True)


def test_no_exchange_takes_a_queue_that_is_there_for_its_own(
    broker: JumpMQ, channel: BlockingChannel, api: API
) -> None:
    """An exchange does not adopt an existing queue: its delayed messages would be stuck or take wrong bindings."""
    long = "n" * 250
    declare(channel, sha256(long.encode()).hexdigest())
    imported = {"name": "amq.delayed.taken", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    api.request("POST", "definitions", json={"queues": [imported]}).raise_for_status()
    for name in (long, "taken"):
        code, text = refused(broker, partial(declare, name=name))
        assert code == 406
        assert f"cannot declare exchange '{name}'"[:60] in text
    api.request("DELETE", "queues", "/", "amq.delayed.taken").raise_for_status()
    declare(channel, "taken")
    assert delayed(channel, "taken") == 0


def test_another_type_is_another_exchange(broker: JumpMQ, channel: BlockingChannel) -> None:
    declare(channel, "typed")
    assert refused(broker, lambda other: declare(other, "typed", "topic")) == (
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-delayed-type' for exchange 'typed' in vhost '/': "
        "received 'topic' but current is 'direct'",
    )


def test_they_are_exported_without_their_queues_and_imported_with_new_ones(
    channel: BlockingChannel, api: API, broker: JumpMQ
) -> None:
    declare(channel, "kept", "topic")
    long = "x" * 250
    declare(channel, long)
    exported = api.get("definitions")
    assert not [one for one in exported["queues"] if one["name"].startswith("amq.")]
    assert [one["type"] for one in exported["exchanges"] if one["name"] in ("kept", long)] == ["x-delayed-message"] * 2
    for name in ("kept", long):
        channel.exchange_delete(name)
    api.request("POST", "definitions", json={"exchanges": exported["exchanges"]}).raise_for_status()
    assert delayed(channel, "kept") == 0
    found = api.get("exchanges", "/", long)
    assert len(found["delayed_queue"]) < 255
    assert found["messages_delayed"] == 0
    api.request(
        "PUT", "policies", "/", "all", json={"pattern": ".*", "definition": {"message-ttl": 1}}
    ).raise_for_status()
    publish(channel, "kept", LONG, key="a.b")
    queue(channel, "kept-queue", "kept", "a.*")
    publish(channel, "kept", 1, key="a.b")
    until(lambda: delayed(channel, "kept") == 1)  # the policy does not apply to delayed messages
    api.request("DELETE", "policies", "/", "all").raise_for_status()


def test_delayed_messages_are_counted_looked_at_and_cancelled(
    channel: BlockingChannel, api: API, broker: JumpMQ
) -> None:
    declare(channel, "seen")
    queue(channel, "seen-queue", "seen")
    began = time.time()
    for number in range(3):
        publish(channel, "seen", LONG + number, str(number))
    shown = api.get("exchanges", "/", "seen")
    assert (shown["delayed_queue"], shown["messages_delayed"]) == ("amq.delayed.seen", 3)
    found = api.get("queues", "/", "amq.delayed.seen", "browse")["messages"]
    assert [one["payload"] for one in found] == ["0", "1", "2"]
    # Clocks of two processes differ by some milliseconds, and ``due_at`` is rounded.
    assert all(LONG / 1000 - 1 <= one["due_at"] - began < LONG / 1000 + 60 for one in found)
    second = str(found[1]["seq"])
    assert api.request("DELETE", "queues", "/", "amq.delayed.seen", "messages", second).status_code == 204
    assert api.request("DELETE", "queues", "/", "amq.delayed.seen", "messages", second).status_code == 404
    assert api.request("DELETE", "queues", "/", "amq.delayed.seen", "messages", "x").status_code == 400
    assert api.request("DELETE", "queues", "/", "seen-queue", "messages", "1").status_code == 400
    assert [one["payload"] for one in api.get("queues", "/", "amq.delayed.seen", "browse")["messages"]] == ["0", "2"]
    assert api.request("DELETE", "queues", "/", "amq.delayed.seen", "contents").status_code == 204
    assert delayed(channel, "seen") == 0


def test_what_is_delayed_lacks_no_consumer(channel: BlockingChannel, api: API) -> None:
    declare(channel, "patient")
    publish(channel, "patient", LONG)
    queue(channel, "lonely", "amq.direct", "lonely")
    publish(channel, "amq.direct", None, key="lonely")
    until(lambda: [one for one in api.get("queues", where="unattended") if one["name"] == "lonely"])
    assert not [one for one in api.get("queues", where="unattended") if one["name"].startswith("amq.delayed.")]
    assert "amq.delayed" not in str(api.get("warnings"))


def test_who_may_not_read_sees_no_delayed_message(channel: BlockingChannel, api: API, broker: JumpMQ) -> None:
    """Users without read permission see no delayed message: an outsider, and a publisher of the virtual host."""
    declare(channel, "secret")
    publish(channel, "secret", LONG)
    api.request("PUT", "vhosts", "other").raise_for_status()
    for user, host, read in (("outsider", "other", ".*"), ("writer", "/", "^public")):
        api.request("PUT", "users", user, json={"password": user, "tags": "management"}).raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": read}
        api.request("PUT", "permissions", host, user, json=rights).raise_for_status()
        their = API(f"http://{user}:{user}@127.0.0.1:{broker.http_port}")
        (number,) = [one["seq"] for one in api.get("queues", "/", "amq.delayed.secret", "browse")["messages"]]
        for method, *path in (
            ("GET", "browse"),
            ("DELETE", "contents"),
            ("DELETE", "messages", str(number)),
            ("GET", "messages"),
        ):
            answer = their.request(method, "queues", "/", "amq.delayed.secret", *path)
            assert answer.status_code in (401, 403), (user, path, answer.text)
    assert delayed(channel, "secret") == 1


def counted(channel: BlockingChannel, names: list[str], count: int) -> Counter[str]:
    """Wait for so many messages, then for later ones; return the number of arrivals of each."""
    found: Counter[str] = Counter()

    def take() -> bool:
        for name in names:
            while (answer := channel.basic_get(name, auto_ack=True))[0] is not None:
                found[answer[2].decode()] += 1
        return found.total() >= count

    until(take)
    take()
    return found


def test_none_is_lost_or_twice_where_the_broker_is_killed(broker: JumpMQ) -> None:
    """Messages due before a kill, during the downtime, or afterwards are delivered once."""
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "killed", "x-consistent-hash")
        names = [queue(channel, f"killed-{number}", "killed", "1") for number in range(3)]
        for number in range(120):
            publish(channel, "killed", 1 + number * 8, str(number), key=str(number), delivery_mode=1 + number % 2)
    broker.kill()
    broker.start()
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, "killed", 1000, "last")
        persistent = {str(number) for number in range(1, 120, 2)}
        found: Counter[str] = Counter()

        def take() -> bool:
            for name in names:
                while (answer := channel.basic_get(name, auto_ack=True))[0] is not None:
                    found[answer[2].decode()] += 1
            return "last" in found and not delayed(channel, "killed")

        until(take)
        take()
    assert max(found.values()) == 1
    # A delay keeps a transient message, too; a due transient message does not survive.
    assert persistent <= found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [{"workers": 3}, {"nodes": 3}])
def test_delayed_messages_reach_queues_of_all_processes_once(processes: dict[str, int], tmp_path: Path) -> None:
    with running(**processes) as broker, connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "spread", "x-modulus-hash")
        names = [queue(channel, f"spread-{number}", "spread") for number in range(6)]
        api = API(f"http://guest:guest@127.0.0.1:{broker.http_port}")
        for number in range(300):
            publish(channel, "spread", 1 + number * 5, str(number), key=str(number))
            if number in (100, 200):
                home = api.get("queues", "/", "amq.delayed.spread")["node"]
                others = [node["name"] for node in api.get("nodes") if node["name"] != home]
                move = {"action": "move"} | ({"node": others[0]} if others else {})
                api.post("queues", "/", "amq.delayed.spread", "actions", body=move)
                until(lambda: not api.get("queues", "/", "amq.delayed.spread").get("moving_from"))
        found = counted(channel, names, 300)
        assert found == {str(number): 1 for number in range(300)}
