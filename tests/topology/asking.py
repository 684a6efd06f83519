"""Generated changes, and the log of the changes made."""

import json
from typing import Any

from hypothesis import strategies as st

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.fields import Field
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    ClearOperatorPolicy,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    ClearUserLimit,
    ClearVirtualHostLimit,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVirtualHost,
    ExchangeDefinition,
    ForgetNode,
    HomeDown,
    LeaveHome,
    PutUser,
    RemoveHome,
    SetOperatorPolicy,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    SetTracing,
    SetUserLimit,
    SetVirtualHostLimit,
    Topology,
    Unbind,
)

HOSTS = st.sampled_from(["/", "shop"])

USERS = st.sampled_from(["ann", "bo\udcff"])

QUEUES = st.sampled_from(
    [
        *(f"q{number}" for number in range(6)),
        "é\udc80",
        "sharding: e0 - one@host - 1",
        "sharding: e0 - two@elsewhere - 0",
    ]
)

EXCHANGES = st.sampled_from(["e0", "e1", "e2", "amq.fanout", ""])

TYPES = st.sampled_from(
    ["x-consistent-hash", "x-consistent-hash", "x-modulus-hash", "topic", "headers", "x-local-random", "odd"]
)

LIMITS = st.sampled_from(["max-connections", "max-queues", "max-bindings"])

PATTERNS = st.sampled_from(["", "^e", "^q", "0$", "("])

FIELDS = st.sampled_from(
    [
        Field("x-max-length", "I", 7),
        Field("x-odd", "A", [("x", b"\x00\xff"), ("F", [Field("in", "D", (1, 5))])]),
        Field("text", "S", b"\xfe"),
        Field("ring-removal", "S", "shift"),
        Field("alternate-exchange", "S", "e1"),
    ]
)

ARGUMENTS = st.lists(FIELDS, max_size=2, unique_by=lambda field: field.name).map(Arguments)

HOLDING = st.sampled_from(
    [
        ("x-delayed-message", Field("x-delayed-type", "S", "topic")),
        ("x-delayed-message", Field("x-delayed-type", "S", "x-consistent-hash")),
        ("x-message-deduplication", Field("x-cache-size", "I", 5)),
    ]
)

BINDINGS = st.builds(
    Binding,
    EXCHANGES,
    st.sampled_from(["queue", "queue", "exchange"]),
    QUEUES | EXCHANGES,
    st.sampled_from([b"1", b"3", b"20", b"#", b"\xff.*", b""]),
    st.just(Arguments()) | ARGUMENTS,
)

DEFINITIONS = st.sampled_from(
    [
        {"shards-per-node": 3},
        {"shards-per-node": 2, "routing-key": "2"},
        {"shards-per-node": 1, "single-active-consumer": True},
        {"max-length": 4},
        {"alternate-exchange": "e2"},
        {"odd": 1},
    ]
)

IDS = st.builds(lambda home, counter: home << 40 | counter, st.integers(1, 2), st.integers(1, 6))

PRIORITIES = st.integers(-1, 2)

CHANGES = st.one_of(
    st.builds(AddHome, st.integers(1, 3), st.sampled_from(["one@host", "two@elsewhere", "three@host"])),
    st.builds(ForgetNode, st.sampled_from(["two@elsewhere", "three@host"])),
    st.builds(HomeDown, st.integers(1, 3), st.lists(IDS, max_size=4).map(tuple)),
    st.builds(LeaveHome, st.integers(1, 3), st.booleans()),
    st.builds(RemoveHome, st.integers(1, 3)),
    st.builds(AddVirtualHost, HOSTS),
    st.builds(DeleteVirtualHost, st.just("shop")),
    st.builds(SetTracing, HOSTS, st.booleans()),
    st.builds(PutUser, USERS, st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2).map(tuple)),
    st.builds(DeleteUser, USERS),
    st.builds(SetPermissions, USERS, HOSTS, PATTERNS, PATTERNS, PATTERNS),
    st.builds(ClearPermissions, USERS, HOSTS),
    st.builds(SetTopicPermissions, USERS, HOSTS, EXCHANGES, PATTERNS, PATTERNS),
    st.builds(ClearTopicPermissions, USERS, HOSTS, st.none() | EXCHANGES),
    st.builds(SetUserLimit, USERS, LIMITS, st.integers(-1, 3)),
    st.builds(ClearUserLimit, USERS, LIMITS),
    st.builds(SetVirtualHostLimit, HOSTS, LIMITS, st.integers(-1, 9)),
    st.builds(ClearVirtualHostLimit, HOSTS, LIMITS),
    st.builds(SetPolicy, HOSTS, st.sampled_from("pq"), PATTERNS, DEFINITIONS, PRIORITIES),
    st.builds(SetOperatorPolicy, HOSTS, st.sampled_from("pq"), PATTERNS, DEFINITIONS, PRIORITIES),
    st.builds(ClearPolicy, HOSTS, st.sampled_from("pq")),
    st.builds(ClearOperatorPolicy, HOSTS, st.sampled_from("pq")),
    st.builds(ExchangeDefinition, HOSTS, EXCHANGES, TYPES, st.booleans(), st.booleans(), st.booleans(), ARGUMENTS).map(
        DeclareExchange
    ),
    st.builds(
        lambda host, name, held, *flags: ExchangeDefinition(*(host, name, held[0], *flags, Arguments([held[1]]))),
        HOSTS,
        EXCHANGES,
        HOLDING,
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ).map(DeclareExchange),
    st.builds(DeleteExchange, HOSTS, EXCHANGES, st.booleans()),
    st.builds(Bind, HOSTS, BINDINGS, st.sampled_from([None, "client"])),
    st.builds(Unbind, HOSTS, BINDINGS, st.sampled_from([None, "client"])),
)

QUEUE_DECLARATIONS = st.fixed_dictionaries(
    {
        "vhost": HOSTS,
        "name": QUEUES,
        "durable": st.booleans(),
        "exclusive": st.booleans(),
        "auto_delete": st.booleans(),
        "arguments": ARGUMENTS,
    }
)

Asked = Change | dict[str, Any] | tuple[str, str]

ASKED: st.SearchStrategy[Asked] = st.one_of(CHANGES, CHANGES, QUEUE_DECLARATIONS, st.tuples(HOSTS, QUEUES))


def change_of(topology: Topology, asked: Asked) -> Change | None:
    """Return a wish's change, as a queue's home makes it."""
    match asked:
        case dict():
            owner = "client" if asked["exclusive"] else None
            return DeclareQueue(topology.define_queue(**asked, owner=owner))
        case tuple():
            declared = topology.vhost(asked[0]).declared.get(asked[1])
            return None if declared is None else DeleteQueue(declared.vhost, declared.name, declared.id)
    return asked


def outcome(topology: Topology, change: Change) -> str:
    """Make one change; return the text of its refusal, "" if accepted."""
    try:
        topology.apply(change)
    except AMQPError as error:
        return error.reply_text
    return ""


def log_of(topology: Topology, wishes: list[Asked]) -> list[tuple[str, str]]:
    """Make changes; return pairs of JSON text and outcome."""
    log: list[tuple[str, str]] = []
    for asked in wishes:
        try:
            change = change_of(topology, asked)
        except AMQPError:
            continue  # refused by the queue's home, without a change
        if change is not None:
            entry = json.dumps(change.to_json())
            log.append((entry, outcome(topology, change)))
    return log
