"""Target queues of a dead letter, and its ``x-death`` header: cycles, forged headers, CC, long keys."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import until
from tests.wire import Basic, Content, WireChannel

Name = Callable[[str], str]


def dying(channel: WireChannel, name: str, key: str | None, exchange: str = "", **arguments: Any) -> str:
    """A queue whose dead letters go to ``exchange``, with the routing key ``key``."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    to = {"x-dead-letter-exchange": exchange} | ({} if key is None else {"x-dead-letter-routing-key": key})
    return channel.queue(name, arguments=to | named)


def arrival(channel: WireChannel, queue: str) -> Content:
    """The next message of a queue, left unacknowledged."""
    return until(lambda: channel.get(queue, no_ack=False))


def reject(channel: WireChannel, message: Content) -> None:
    channel.send(Basic.Reject(delivery_tag=message.method.delivery_tag, requeue=False))


def died(channel: WireChannel, unique: Name, headers: dict[str, Any] | None, **properties: Any) -> Content:
    """The dead letter of a message with these headers, rejected in a queue ``source``."""
    grave = channel.queue(unique("grave"))
    source = dying(channel, unique("source"), grave)
    channel.publish("", source, b"dead", Basic.Properties(headers=headers, **properties))
    reject(channel, arrival(channel, source))
    return arrival(channel, grave)


def summary(message: Content) -> list[tuple[Any, Any, Any]]:
    """Queue, reason and count of the entries, the latest first."""
    return [(one.get("queue"), one.get("reason"), one.get("count")) for one in message.headers["x-death"]]


def test_overflow_into_the_same_queue_ends(channel: WireChannel, unique: Name) -> None:
    queue = dying(channel, name := unique("queue"), name, max_length=10)
    for number in range(300):
        channel.publish("", queue, b"%d" % number)
    assert channel.bodies(queue) == [b"%d" % number for number in range(290, 300)]


def test_a_circle_is_judged_by_the_queue_that_the_letter_comes_to(channel: WireChannel, unique: Name) -> None:
    """A dead letter for two queues is dropped only on the way to the queue where it died before."""
    exchange = channel.exchange(unique("graves"), "fanout")
    first, end = unique("first"), channel.queue(unique("end"))
    dying(channel, first, None, exchange, max_length=0)
    channel.bind(first, exchange)
    channel.bind(end, exchange)
    channel.publish("", first, b"round")
    assert summary(arrival(channel, end)) == [(first, "maxlen", 1)]
    assert channel.ready(first) == 0
    assert channel.is_silent(0.05)
    assert channel.bodies(end) == []


def test_a_circle_in_which_somebody_rejects_goes_on(channel: WireChannel, unique: Name) -> None:
    work, wait = unique("work"), unique("wait")
    dying(channel, work, wait)
    dying(channel, wait, work, message_ttl=1)
    channel.publish("", work, b"again")
    for _ in range(3):
        reject(channel, arrival(channel, work))
    assert summary(arrival(channel, work)) == [(wait, "expired", 3), (work, "rejected", 3)]


def test_a_queue_of_length_0_dead_letters_what_died_there_otherwise(channel: WireChannel, unique: Name) -> None:
    grave = channel.queue(unique("grave"))
    queue = dying(channel, unique("full"), grave, max_length=0)
    headers: dict[str, Any] = {
        "x-death": [{"queue": queue, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["k"]}]
    }
    channel.publish("", queue, b"over", Basic.Properties(headers=headers))
    assert summary(arrival(channel, grave)) == [(queue, "maxlen", 1), (queue, "rejected", 1)]


def test_entries_without_a_count_are_summed_up(channel: WireChannel, unique: Name) -> None:
    entries = [{"queue": f"q{number % 2}", "reason": "expired", "exchange": "x"} for number in range(7)]
    message = died(channel, unique, {"x-death": entries})
    assert summary(message)[1:] == [("q1", "expired", 3), ("q0", "expired", 4)]


def test_entries_that_have_a_count_keep_it(channel: WireChannel, unique: Name) -> None:
    entries = [{"queue": name, "reason": "expired", "count": count} for name, count in (("a", 5), ("b", 7), ("c", 1))]
    assert summary(died(channel, unique, {"x-death": entries}))[1:] == [
        ("c", "expired", 1), ("b", "expired", 7), ("a", "expired", 5),
    ]  # fmt: skip


def test_an_entry_that_counts_on_keeps_what_it_said_first(channel: WireChannel, unique: Name) -> None:
    grave, source = channel.queue(unique("grave")), unique("source")
    dying(channel, source, grave)
    entry: dict[str, Any] = {
        "queue": source,
        "reason": "rejected",
        "count": 4,
        "exchange": "old",
        "routing-keys": ["older"],
    }
    channel.publish("", source, b"dead", Basic.Properties(headers={"x-death": [entry]}))
    reject(channel, arrival(channel, source))
    (found,) = arrival(channel, grave).headers["x-death"]
    assert found == entry | {"count": 5}


@pytest.mark.parametrize("header", ["died", 7, {"queue": "q"}, None], ids=str)
def test_a_header_that_is_no_list_is_replaced(channel: WireChannel, unique: Name, header: Any) -> None:
    message = died(channel, unique, {"x-death": header, "device": 7})
    assert [entry[1:] for entry in summary(message)] == [("rejected", 1)]
    assert message.headers["device"] == 7
    assert "x-first-death-queue" not in message.headers


def test_the_first_death_is_told_once(channel: WireChannel, unique: Name) -> None:
    message = died(channel, unique, {"x-first-death-reason": "forged"})
    assert message.headers["x-first-death-reason"] == "rejected"


def test_the_keys_of_cc_are_told(channel: WireChannel, unique: Name) -> None:
    message = died(channel, unique, {"CC": ["copy-1", "copy-2"]})
    (entry,) = message.headers["x-death"]
    assert entry["routing-keys"][1:] == ["copy-1", "copy-2"]


def test_a_letter_with_a_key_of_its_own_goes_there_alone(channel: WireChannel, unique: Name) -> None:
    copy, grave, source = channel.queue(unique("copy")), channel.queue(unique("grave")), unique("source")
    dying(channel, source, grave)
    channel.publish("", source, b"dead", Basic.Properties(headers={"CC": [copy]}))
    reject(channel, arrival(channel, source))
    assert "CC" not in arrival(channel, grave).headers
    assert channel.bodies(copy) == [b"dead"]


def test_a_letter_that_keeps_its_key_keeps_its_cc(channel: WireChannel, unique: Name) -> None:
    exchange = channel.exchange(unique("graves"), "direct")
    grave, source = channel.queue(unique("grave")), unique("source")
    channel.bind(grave, exchange, "copy")
    dying(channel, source, None, exchange)
    channel.publish("", source, b"dead", Basic.Properties(headers={"CC": ["copy"]}))
    reject(channel, arrival(channel, source))
    message = arrival(channel, grave)
    assert (message.method.routing_key, message.headers["CC"]) == (source, ["copy"])


def test_a_chain_of_200_queues(channel: WireChannel, unique: Name) -> None:
    names = [unique(f"link-{number}") for number in range(201)]
    for name, following in itertools.pairwise(names):
        dying(channel, name, following, max_length=0)
    channel.queue(names[-1])
    channel.publish("", names[0], b"down")
    message = arrival(channel, names[-1])
    assert message.body == b"down"
    assert [entry[0] for entry in summary(message)][:1] == [names[-2]]
    assert len(message.headers["x-death"]) == 200
