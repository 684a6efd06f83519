"""A snapshot: all definitions as records, sufficient for a second process to restore the state."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.generating import examples
from tests.topology.asking import ASKED, Asked, log_of, outcome
from tests.topology.state import state_of

from jumpmq.topology import AddHome, AddVirtualHost, Arguments, Change, Topology
from jumpmq.topology.digest import Digest
from jumpmq.topology.snapshot import digest_of, records_of


def compared(topology: Topology) -> dict[str, Any]:
    """Return the state without the order of a queue's bindings in different exchanges."""
    state = state_of(topology)
    for host in state["vhosts"].values():
        host["bindings to"] = {name: sorted(map(repr, bindings)) for name, bindings in host["bindings to"].items()}
    return state


def declaration(name: str) -> dict[str, Any]:
    """The wish for a queue."""
    kind = {"durable": True, "exclusive": False, "auto_delete": False}
    return {"vhost": "/", "name": name, **kind, "arguments": Arguments()}


@given(st.lists(ASKED, max_size=60), st.lists(ASKED, max_size=20))
@example([declaration("q0"), declaration("q1"), ("/", "q1")], [declaration("q2")])  # the last number is not used again
@settings(max_examples=examples(100), deadline=None)
def test_a_newcomer_becomes_the_same_and_goes_on_alike(before: list[Asked], after: list[Asked]) -> None:
    first = Topology("one@host", shared=True)
    for change in (AddHome(1, "one@host"), AddHome(2, "two@elsewhere"), AddVirtualHost("/")):
        first.apply(change)
    log_of(first, before)
    newcomer = Topology("two@elsewhere", home=2, shared=True)
    newcomer.restore([(kind, key, json.loads(json.dumps(value))) for kind, key, value in records_of(first)])
    assert newcomer.applied == first.applied
    assert compared(newcomer) == compared(first)
    for entry, expected in log_of(first, after):
        assert outcome(newcomer, Change.from_json(json.loads(entry))) == expected
    assert compared(newcomer) == compared(first)


@given(st.lists(ASKED, max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_a_digest_follows_every_change(wishes: list[Asked]) -> None:
    """The digest equals the digest of all records, in whatever order the changes were made."""
    topology = Topology("one@host", shared=True)
    digest = topology.records.maintain(Digest())
    for change in (AddHome(1, "one@host"), AddHome(2, "two@elsewhere"), AddVirtualHost("/")):
        topology.apply(change)
    for asked in wishes:
        log_of(topology, [asked])
        topology.records.digest_rings()
        assert digest.value == digest_of(topology).value


def test_digests_differ_where_one_record_does() -> None:
    first, second = Digest(), Digest()
    for digest in (first, second):
        for number in range(5):
            digest.put("queue", str(number), "{}")
    assert first.value == second.value
    second.put("queue", "3", '{"x":1}')
    assert first.value != second.value
    second.delete("queue", "3")
    first.delete("queue", "3")
    assert first.value == second.value
