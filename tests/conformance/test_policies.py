"""Policies: valid definitions, the effective policy, and effects on queues and exchanges."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import Basic, ChannelClosed, Exchange, WireChannel

Name = Callable[[str], str]


def fill(channel: WireChannel, queue: str, count: int, exchange: str = "") -> None:
    """Publish messages 0, 1, ...; every message is confirmed or refused on return."""
    publisher = channel.connection.channel()
    publisher.confirm_select()
    for number in range(count):
        publisher.publish(exchange, queue, str(number).encode())
    answered: set[int] = set()
    while len(answered) < count:
        answer = publisher.next()
        answered.update(range(1, answer.delivery_tag + 1) if answer.multiple else [answer.delivery_tag])
    publisher.close()


class Governed:
    """A queue with a policy of its own."""

    def __init__(self, channel: WireChannel, operator: Operator, unique: Name) -> None:
        self.channel, self.operator, self.unique = channel, operator, unique
        self.name = unique("governed")

    def declare(self, **arguments: Any) -> "Governed":
        self.channel.queue(self.name, arguments=arguments)
        return self

    def set(self, definition: Any, policy: str = "policy", **options: Any) -> "Governed":
        self.operator.set_policy(f"{self.name} {policy}", f"^{self.name}$", definition, **options)
        return self

    def clear(self, policy: str = "policy", **options: Any) -> None:
        self.operator.clear_policy(f"{self.name} {policy}", **options)

    def holds(self, count: int) -> None:
        until(lambda: self.channel.ready(self.name) == count)

    def keeps(self, count: int) -> None:
        """Publish ten messages, repeatedly, until the policy keeps the given number."""

        def kept() -> bool:
            fill(self.channel, self.name, 10)
            found = len(self.channel.bodies(self.name))
            return found == count

        until(kept)


@pytest.fixture
def governed(channel: WireChannel, operator: Operator, unique: Name) -> Governed:
    """An undeclared queue with a policy."""
    return Governed(channel, operator, unique)


# --- valid definitions ---


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"shards-per-node": "two"}, 'shards-per-node should be a number, actually was <<"two">>'),
        ({"shards-per-node": True}, "shards-per-node should be a number, actually was true"),
        ({"shards-per-node": None}, "shards-per-node should be a number, actually was null"),
        ({"shards-per-node": {"a": 1}}, 'shards-per-node should be a number, actually was #{<<"a">> => 1}'),
        ({"shards-per-node": [1, "a"]}, 'shards-per-node should be a number, actually was [1,<<"a">>]'),
        ({"shards-per-node": -1}, "shards-per-node should be greater than 0, actually was -1"),
        ({"routing-key": "1234"}, "shards-per-node must be specified"),
        ({"shards-per-node": 2, "routing-key": 7}, "routing-key should be binary, actually was 7"),
        ({"message-ttl": "x", "shards-per-node": "y"}, 'shards-per-node should be a number, actually was <<"y">>'),
        ({"x": 1}, '[{<<"x">>,1}] are not recognised policy settings'),
        ({"x": 1, "message-ttl": 5, "y": "z"}, '[{<<"x">>,1},{<<"y">>,<<"z">>}] are not recognised policy settings'),
        ({"max-priority": 3}, '[{<<"max-priority">>,3}] are not recognised policy settings'),
        ({}, "no policy provided"),
        ({"message-ttl": "a"}, '<<"a">> is not a valid message TTL'),
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"message-ttl": 1.5}, "1.5 is not a valid message TTL"),
        ({"message-ttl": 1e30}, "1.0e30 is not a valid message TTL"),
        ({"message-ttl": [97, 98]}, '"ab" is not a valid message TTL'),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length": 'a\nb"c'}, r'<<"a\nb\"c">> is not a valid maximum length'),
        ({"max-length-bytes": "é€"}, "<<195,169,226,130,172>> is not a valid maximum length in bytes"),
        ({"max-in-memory-length": -1}, "-1 is not a valid maximum memory in bytes"),
        ({"max-in-memory-bytes": "q"}, '<<"q">> is not a valid maximum memory in bytes'),
        ({"delivery-limit": 1.5}, "1.5 is not a valid delivery limit"),
        ({"overflow": "a"}, '<<"a">> is not a valid overflow value'),
        ({"queue-mode": "a"}, '<<"a">> is not a valid queue-mode value'),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"queue-leader-locator": "x"}, '<<"x">> is not a valid queue leader locator value'),
        ({"queue-master-locator": "x"}, '<<"x">> is not a valid master locator'),
        ({"initial-cluster-size": "a"}, '<<"a">> is not a valid cluster size'),
        ({"stream-max-segment-size-bytes": -1}, "-1 is not a valid segment size"),
        ({"stream-filter-size-bytes": 15}, "15 is not a valid filter size. Valid range is 16-255"),
        ({"consumer-timeout": -1}, "-1 is not a valid consumer timeout"),
        ({"target-group-size": 0}, "0 is not a valid qq target count value"),
        ({"max-age": "1 D"}, '<<"1 D">> is not a valid max age'),
        ({"max-age": "0D"}, '<<"0D">> is not a valid max age'),
        ({"alternate-exchange": 1}, "1 is not a valid alternate exchange name"),
        ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": 1}, "1 is not a valid dead letter routing key"),
        ({"dead-letter-strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({"ha-mode": "x"}, '<<"x">> is not a valid ha-mode value'),
        ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        ({"ha-mode": "exactly", "ha-params": "a"}, 'ha-mode="exactly" takes an integer, <<"a">> given'),
        ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
        (
            {"ha-mode": "nodes", "ha-params": [1]},
            'ha-mode="nodes" takes a list of strings, [1] was not a string',
        ),
        ({"ha-mode": "all", "ha-params": 1}, 'ha-mode="all" does not take parameters'),
        (
            {"ha-sync-mode": "automatic"},
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown",
        ),
        (
            {"ha-mode": "all", "ha-sync-mode": "x"},
            'ha-sync-mode must be "manual" or "automatic", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        (
            {"ha-mode": "all", "ha-promote-on-shutdown": "x"},
            'ha-promote-on-shutdown must be "always" or "when-synced", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-failure": "x"},
            'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>',
        ),
    ],
)
def test_definitions_are_refused_in_the_same_words(operator: Operator, definition: Any, reason: str) -> None:
    assert operator.refusal(definition) == f"Validation failed\n\n{reason}\n"


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 0, "overflow": "reject-publish-dlx"},
        {"message-ttl": 99999999999999, "dead-letter-routing-key": "without an exchange"},
        {"alternate-exchange": "", "dead-letter-exchange": "", "dead-letter-strategy": "at-most-once"},
        {"queue-mode": "lazy", "queue-version": 2, "queue-master-locator": "min-masters"},
        {"queue-leader-locator": "balanced", "initial-cluster-size": 0, "stream-max-segment-size-bytes": 1},
        {"max-age": "1D", "delivery-limit": 0, "max-in-memory-length": 1, "max-in-memory-bytes": 1},
        {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 7, "ha-promote-on-failure": "always"},
        {"ha-mode": "exactly", "ha-params": 2, "ha-promote-on-shutdown": "when-synced"},
        {"ha-mode": "nodes", "ha-params": ["a@b"]},
        {"shards-per-node": 0, "routing-key": "1234"},
    ],
)
def test_definitions_that_are_taken(operator: Operator, definition: Any) -> None:
    operator.set_policy("taken", "^none$", definition)
    assert operator.see("policies", "/", "taken")["definition"] == definition


def test_the_other_parts_are_refused_in_the_same_words(operator: Operator) -> None:
    ttl = {"message-ttl": 1}
    assert operator.refusal(ttl, pattern=5) == "Validation failed\n\npattern should be a binary but was 5\n"
    assert operator.refusal(ttl, pattern="(").startswith(
        "Validation failed\n\npattern should be regular expression but is invalid: {"
    )
    assert operator.refusal(ttl, priority="5") == (
        'Validation failed\n\npriority should be a number, actually was <<"5">>\n'
    )
    assert operator.refusal(ttl, **{"apply-to": "x"}) == (
        "Validation failed\n\napply-to 'x' unrecognised; should be one of: 'queues', 'classic_queues',  "
        "'quorum_queues', 'streams', 'exchanges', or 'all'\n"
    )
    for body, missing in (({}, "pattern},{key_missing,definition"), ({"pattern": ""}, "definition")):
        assert operator.put("refused", body).json()["reason"] == f"[{{key_missing,{missing}}}]"


OPERATOR_KEYS = (
    "message-ttl", "expires", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
    "delivery-limit",
)  # fmt: skip


def test_operator_policies_take_limits_only(operator: Operator) -> None:
    operator.set_policy("limits", "^none$", dict.fromkeys(OPERATOR_KEYS, 1), "operator-policies")
    for key, value in {"overflow": "drop-head", "shards-per-node": 1, "alternate-exchange": "a"}.items():
        shown = f'<<"{value}">>' if isinstance(value, str) else value
        assert operator.refusal({key: value}, "operator-policies") == (
            f'Validation failed\n\n[{{<<"{key}">>,{shown}}}] are not recognised policy settings\n'
        )


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_policies_are_listed_and_cleared(operator: Operator, kind: str) -> None:
    assert operator.put("a/b ü", {"pattern": "^none$", "definition": {"max-length": 1}}, kind).status_code == 201
    body = {"pattern": "^none$", "definition": {"max-length": 2}, "priority": 7, "apply-to": "queues"}
    assert operator.put("a/b ü", body, kind).status_code == 204
    shown = {"vhost": "/", "name": "a/b ü", **body}
    assert operator.see(kind, "/", "a/b ü") == shown
    assert operator.see(kind, "/") == operator.see(kind) == [shown]
    operator.clear_policy("a/b ü", kind)
    assert operator.see(kind) == []
    for method in ("GET", "DELETE"):
        assert operator.ask(method, kind, "/", "a/b ü").status_code == 404
    assert operator.ask("PUT", kind, "nowhere", "p", json=body).status_code == 404


# --- the effective policy ---


def test_the_highest_priority_is_in_force(governed: Governed) -> None:
    governed.declare().set({"max-length": 3}, "low").set({"max-length": 5}, "high", priority=1).keeps(5)
    governed.set({"max-length": 3}, "low", priority=2).keeps(3)
    governed.clear("low")
    governed.keeps(5)
    governed.clear("high")
    governed.keeps(10)


def test_exactly_one_policy_is_in_force(governed: Governed) -> None:
    """Settings of other policies have no effect."""
    governed.declare().set({"max-length": 3}, "low").set({"message-ttl": 600000}, "high", priority=1).keeps(10)


def test_a_policy_is_meant_for_queues_or_exchanges(governed: Governed) -> None:
    governed.declare().set({"max-length": 3}, apply_to="exchanges").keeps(10)
    governed.set({"max-length": 3}, apply_to="queues").keeps(3)
    governed.set({"max-length": 4}, apply_to="all").keeps(4)


def test_the_pattern_is_searched_in_the_name(governed: Governed) -> None:
    governed.declare()
    governed.operator.set_policy("searched", governed.name[2:-1], {"max-length": 3})
    governed.keeps(3)


def test_a_policy_waits_for_its_queue(governed: Governed) -> None:
    governed.set({"max-length": 3}).declare().keeps(3)


def test_of_policy_and_operator_policy_the_lower_limit_counts(governed: Governed) -> None:
    governed.declare().set({"max-length": 5}).set({"max-length": 3}, "limit", kind="operator-policies").keeps(3)
    governed.set({"max-length": 2}).keeps(2)
    governed.clear()
    governed.keeps(3)
    governed.clear("limit", kind="operator-policies")
    governed.keeps(10)


def test_of_argument_and_policy_the_lower_limit_counts(governed: Governed) -> None:
    governed.declare(**{"x-max-length": 4}).set({"max-length": 6}).keeps(4)
    governed.set({"max-length": 2}).keeps(2)


def test_an_argument_that_is_no_number_wins(governed: Governed) -> None:
    governed.declare(**{"x-overflow": "drop-head"}).set({"max-length": 3, "overflow": "reject-publish"})
    governed.keeps(3)
    fill(governed.channel, governed.name, 10)
    assert governed.channel.bodies(governed.name) == [b"7", b"8", b"9"]


def test_an_equivalent_declaration_is_one_of_arguments(governed: Governed) -> None:
    governed.declare().set({"max-length": 3}).keeps(3)
    governed.declare()
    with pytest.raises(ChannelClosed, match="inequivalent arg 'x-max-length'"):
        governed.declare(**{"x-max-length": 3})


# --- what it does ---


def test_a_lower_length_takes_effect_at_once(governed: Governed) -> None:
    fill(governed.declare().channel, governed.name, 10)
    governed.set({"max-length": 3}).holds(3)
    governed.set({"max-length-bytes": 2}).holds(2)
    assert governed.channel.bodies(governed.name) == [b"8", b"9"]


def test_what_no_longer_fits_is_dead_lettered(governed: Governed) -> None:
    dead = governed.channel.queue(governed.unique("dead"))
    fill(governed.declare().channel, governed.name, 5)
    governed.set({"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": dead}).holds(2)
    until(lambda: governed.channel.ready(dead) == 3)
    assert governed.channel.bodies(dead) == [b"0", b"1", b"2"]


def test_a_ttl_is_for_messages_to_come(governed: Governed) -> None:
    governed.declare().channel.publish("", governed.name, b"before")
    governed.set({"message-ttl": 1})
    time.sleep(0.5)
    fill(governed.channel, governed.name, 1)
    until(lambda: governed.channel.ready(governed.name) == 2)
    time.sleep(0.2)
    assert governed.channel.bodies(governed.name) == [b"before"]


def test_an_expiry_begins_with_the_policy(governed: Governed) -> None:
    governed.declare()
    time.sleep(0.6)
    began = time.monotonic()
    governed.set({"expires": 500})
    time.sleep(0.2)
    is_there = governed.operator.finds_queue(governed.name)
    assert is_there or time.monotonic() - began > 0.5
    until(lambda: not governed.operator.finds_queue(governed.name))


def test_reject_publish(governed: Governed) -> None:
    governed.declare().set({"max-length": 1, "overflow": "reject-publish"}).keeps(1)
    fill(governed.channel, governed.name, 3)
    assert governed.channel.bodies(governed.name) == [b"0"]


def test_an_alternate_exchange_by_policy(governed: Governed) -> None:
    channel = governed.channel
    source, other = governed.name, channel.exchange(governed.unique("other"), "fanout")
    channel.bind(governed.declare().name, other)
    channel.call(Exchange.Declare(exchange=source, exchange_type="direct"))
    governed.set({"alternate-exchange": other}, apply_to="exchanges")

    def arrives() -> bool:
        fill(channel, "nowhere", 1, source)
        return bool(channel.bodies(governed.name))

    until(arrives)
    governed.clear()
    until(lambda: not arrives())
    channel.call(Exchange.Delete(exchange=source))


def test_the_default_exchange_has_no_alternate_exchange_by_policy(governed: Governed) -> None:
    channel = governed.channel
    source, other = governed.name, channel.exchange(governed.unique("other"), "fanout")
    channel.bind(governed.declare().name, other)
    channel.call(Exchange.Declare(exchange=source, exchange_type="direct"))
    policy = f"{source} of both"
    governed.operator.set_policy(policy, f"^({source})?$", {"alternate-exchange": other}, apply_to="exchanges")

    def arrives(exchange: str) -> bool:
        fill(channel, governed.unique("nowhere"), 1, exchange)
        return bool(channel.bodies(governed.name))

    until(lambda: arrives(source))
    assert not arrives("")
    governed.operator.clear_policy(policy)
    channel.call(Exchange.Delete(exchange=source))


def test_an_alternate_exchange_by_argument_wins(governed: Governed) -> None:
    channel = governed.channel
    source, other = governed.name, channel.exchange(governed.unique("other"), "fanout")
    channel.bind(governed.declare().name, other)
    governed.set({"alternate-exchange": "nobody"}, apply_to="exchanges")
    channel.call(Exchange.Declare(exchange=source, exchange_type="direct", arguments={"alternate-exchange": other}))
    fill(channel, "nowhere", 1, source)
    assert channel.ready(governed.name) == 1
    channel.call(Exchange.Delete(exchange=source))


# --- single active consumers ---


def test_the_first_consumer_stays_active_whatever_the_priorities(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("single"), arguments={"x-single-active-consumer": True})
    for tag, priority in (("low", 0), ("high", 10), ("middle", 5)):
        channel.consume(queue, tag, no_ack=True, arguments={"x-priority": priority})
    channel.publish("", queue, b"1")
    assert channel.next().method.consumer_tag == "low"


def test_the_next_active_consumer_is_the_one_of_the_highest_priority(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("single"), arguments={"x-single-active-consumer": True})
    for tag, priority in (("low", 0), ("middle", 5), ("high", 10)):
        channel.consume(queue, tag, no_ack=True, arguments={"x-priority": priority})
    channel.call(Basic.Cancel(consumer_tag="low"))
    channel.publish("", queue, b"1")
    assert channel.next().method.consumer_tag == "high"


def test_nobody_consumes_exclusively_where_one_is_active_anyway(channel: WireChannel, unique: Name) -> None:
    queue = channel.queue(unique("single"), arguments={"x-single-active-consumer": True})
    with pytest.raises(ChannelClosed) as refused:
        channel.consume(queue, exclusive=True)
    assert (refused.value.code, refused.value.text) == (
        403,
        f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use",
    )
