"""A log of changes, as JSON, replayed on a second node gives the same state; hash rings are equal bit for bit."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.topology.asking import ASKED, CHANGES, Asked, change_of, log_of, outcome
from tests.topology.state import state_of

from jumpmq.amqp.errors import AMQPError
from jumpmq.store.changes import Definitions
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Bind,
    Binding,
    Change,
    DeclareExchange,
    DeclareQueue,
    ExchangeDefinition,
    Topology,
)


def processes() -> tuple[Topology, Topology]:
    """Two joined nodes, with a virtual host."""
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
    """Records of a process on disk, as JSON text, in the order of first writes."""

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
        """Return a process started from stored records."""
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
    """A process started from its records stays equal to two others: transient queues and rings, bit for bit."""
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
