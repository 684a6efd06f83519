"""A log of changes, as JSON, replayed on another node: the state is the same, and hash rings are bit for bit."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.topology.state import state_of

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.fields import Field
from jumpmq.store.changes import Definitions
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
    """The change that a wish becomes at a queue's home."""
    match asked:
        case dict():
            owner = "client" if asked["exclusive"] else None
            return DeclareQueue(topology.define_queue(**asked, owner=owner))
        case tuple():
            declared = topology.vhost(asked[0]).declared.get(asked[1])
            return None if declared is None else DeleteQueue(declared.vhost, declared.name, declared.id)
    return asked


def outcome(topology: Topology, change: Change) -> str:
    """Make one change; returns what is said where it is refused."""
    try:
        topology.apply(change)
    except AMQPError as error:
        return error.reply_text
    return ""


def log_of(topology: Topology, wishes: list[Asked]) -> list[tuple[str, str]]:
    """Make changes; returns each as JSON text, with its outcome."""
    log: list[tuple[str, str]] = []
    for asked in wishes:
        try:
            change = change_of(topology, asked)
        except AMQPError:
            continue  # its home does not even ask for it
        if change is not None:
            entry = json.dumps(change.to_json())
            log.append((entry, outcome(topology, change)))
    return log


def processes() -> tuple[Topology, Topology]:
    """Two nodes that have joined each other, with a virtual host."""
    first, second = Topology("one@host"), Topology("two@elsewhere", home=2)
    for topology in (first, second):
        for change in (AddHome(1, "one@host"), AddHome(2, "two@elsewhere"), AddVirtualHost("/")):
            topology.apply(change)
    return first, second


@given(st.lists(ASKED, max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_the_same_changes_make_the_same_state_on_every_node(wishes: list[Asked]) -> None:
    first, second = processes()
    for entry, expected in log_of(first, wishes):
        change = Change.from_json(json.loads(entry))
        assert json.dumps(change.to_json()) == entry
        assert outcome(second, change) == expected
    assert state_of(second) == state_of(first)


@given(st.lists(ASKED, max_size=40), CHANGES)
@settings(max_examples=examples(100), deadline=None)
def test_a_refused_change_changes_nothing_and_is_refused_by_every_node(wishes: list[Asked], last: Change) -> None:
    first, second = processes()
    for entry, _ in log_of(first, wishes):
        outcome(second, Change.from_json(json.loads(entry)))
    before = state_of(first)
    outcomes = []
    for topology in (first, second):
        try:
            topology.check(last)
            outcomes.append("")
        except AMQPError as error:
            outcomes.append(error.reply_text)
        assert state_of(topology) == before
    assert outcomes[0] == outcomes[1]


class Kept:
    """What a process has on disk: records as JSON text, in the order in which they were first put."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], str] = {}

    def put(self, kind: str, key: str, value: Any) -> None:
        self.records[kind, key] = json.dumps(value)

    def put_text(self, kind: str, key: str, value: str) -> None:
        self.records[kind, key] = value

    def change(self, definitions: Definitions) -> None:
        for key in definitions.removed:
            self.records.pop(key, None)
        self.records.update(definitions.put)

    def delete(self, kind: str, key: str) -> None:
        self.records.pop((kind, key), None)

    def drop_queue(self, queue_id: int) -> None:
        """Queues have no messages here."""

    def process(self, home: int) -> Topology:
        """A process that starts from its records."""
        topology = Topology(NODES[home - 1], self, home=home, shared=True)  # type: ignore[arg-type]  # without messages
        topology.restore([(*key, json.loads(value)) for key, value in self.records.items()])
        return topology


NODES = ["one@host", "two@elsewhere", "three@host"]
RESTARTS = st.dictionaries(st.integers(0, 50), st.integers(1, 3), max_size=4)


@given(st.lists(st.tuples(st.integers(1, 3), ASKED), max_size=50), RESTARTS)
@settings(max_examples=200, deadline=None)
def test_a_process_that_starts_from_its_own_records_goes_on_as_the_others(
    wishes: list[tuple[int, Asked]], restarts: dict[int, int]
) -> None:
    """Three processes replay one log. Transient queues and rings are those of the others, bit for bit."""
    kept = {home: Kept() for home in (1, 2, 3)}
    running = {home: kept[home].process(home) for home in kept}
    joining: list[Change] = [AddHome(home, node) for home, node in enumerate(NODES, 1)]
    log = [*((1, change) for change in (*joining, AddVirtualHost("/"))), *wishes]
    number = 0
    for place, (home, asked) in enumerate(log):
        if (restarted := restarts.get(place)) is not None:
            running[restarted].flush_rings()
            running[restarted] = kept[restarted].process(restarted)
        try:
            change = change_of(running[home], asked)
        except AMQPError:
            continue
        if change is not None:
            number += 1
            assert len({outcome(topology, change) for topology in running.values()}) == 1
    states = [state_of(topology) for topology in running.values()]
    assert states[0] == states[1] == states[2]
    assert [topology.applied for topology in running.values()] == [number] * 3
    for home, topology in running.items():
        queues = [queue for host in topology.vhosts.values() for queue in host.declared.values()]
        counts = {at: count for at, count in topology.holdings.queues_by_home.items() if count}
        assert counts == Counter(queue.definition.home for queue in queues)
        for host in topology.vhosts.values():
            here = {name for name, queue in host.declared.items() if queue.definition.home == home}
            assert set(host.queues) == here


def test_a_ring_keeps_the_transient_queues_of_other_homes() -> None:
    kept = Kept()
    topology = kept.process(1)
    for change in (
        AddHome(1, NODES[0]),
        AddHome(2, NODES[1]),
        AddVirtualHost("/"),
        DeclareExchange(ExchangeDefinition("/", "e", "x-consistent-hash", durable=True)),
    ):
        topology.apply(change)
    for name, home in (("a", 1), ("b", 2), ("c", 1), ("d", 2)):
        topology.apply(DeclareQueue(topology.define_queue("/", name, home=home)))
        topology.apply(Bind("/", Binding("e", "queue", name, b"2")))
    topology.flush_rings()
    before = state_of(topology)["vhosts"]["/"]["rings"]["e"]
    started = kept.process(1)
    assert state_of(started)["vhosts"]["/"]["rings"]["e"] == before
    started.apply(AddHome(1, NODES[0]))
    assert list(started.vhost("/").declared) == ["b", "d"]
    assert [name for name, _ in state_of(started)["vhosts"]["/"]["rings"]["e"]["destinations"]] == ["b", "d"]


def test_a_binding_is_judged_alike_where_its_queue_is_and_elsewhere() -> None:
    changes = [
        AddHome(1, NODES[0]),
        AddHome(2, NODES[1]),
        AddVirtualHost("/"),
        DeclareExchange(ExchangeDefinition("/", "near", "x-local-random")),
    ]
    outcomes = []
    for home in (1, 2):
        topology = Kept().process(home)
        for change in changes:
            topology.apply(change)
        topology.apply(DeclareQueue(topology.define_queue("/", "q", home=1)))
        outcomes.append(outcome(topology, Bind("/", Binding("near", "queue", "q", b""))))
    assert outcomes == ["", ""]
