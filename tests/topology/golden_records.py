"""The encoding of each kind of change, and the resulting records in the store.

``python -m tests.topology.golden_records`` writes the file. The lines of earlier changes must stay as they are: later
releases read the disks, the etcd and the links of earlier ones.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.fields import Field
from jumpmq.store.changes import Definitions, json_text
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    ClearGlobalParameter,
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
    EndMove,
    ExchangeDefinition,
    ForgetNode,
    HomeDown,
    LeaveHome,
    MoveQueue,
    PutUser,
    QueueDefinition,
    RemoveHome,
    SetGlobalParameter,
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

PATH = Path(__file__).parents[1] / "data" / "definitions-records.jsonl"

ODD = Arguments(
    [Field("x-odd", "A", [("x", b"\x00\xff"), ("F", [Field("in", "D", (1, 5))])]), Field("text", "S", b"\xfe")]
)
FIRST, SECOND, THIRD = (home << 40 for home in (1, 2, 3))


def queue(name: str, home: int = 1, **options: Any) -> DeclareQueue:
    return DeclareQueue(QueueDefinition("/", name, home=home, **options))


def bind(source: str, destination: str, key: bytes = b"", arguments: Arguments = ODD) -> Bind:
    return Bind("/", Binding(source, "queue", destination, key, arguments), user="ann")


CHANGES: list[Change] = [
    AddHome(1, "one@host"),
    AddHome(2, "two@host"),
    AddHome(3, "three@host"),
    AddVirtualHost("/"),
    AddVirtualHost("shop", "quorum", "A shop\udcff", ("a", "b"), 2),
    SetTracing("shop", True),
    SetTracing("/", True),
    SetTracing("/", False),
    PutUser("ann", "hash", ("monitoring", "policymaker")),
    PutUser("bo\udcff", ""),
    SetPermissions("ann", "/", "^a", ".*", ""),
    SetPermissions("bo\udcff", "shop", ".*", ".*", ".*"),
    ClearPermissions("ann", "/"),
    SetTopicPermissions("ann", "/", "amq.topic", "^a", "{username}"),
    SetTopicPermissions("ann", "/", "other", "", ""),
    ClearTopicPermissions("ann", "/", "other"),
    ClearTopicPermissions("ann", "/"),
    SetTopicPermissions("bo\udcff", "shop", "amq.topic", "^a", "^b"),
    SetUserLimit("ann", "max-connections", 5),
    SetUserLimit("ann", "max-queues", -1),
    ClearUserLimit("ann", "max-connections"),
    ClearUserLimit("ann", "max-queues"),
    SetUserLimit("bo\udcff", "max-bindings", 3),
    SetVirtualHostLimit("/", "max-queues", 100),
    ClearVirtualHostLimit("/", "max-queues"),
    SetVirtualHostLimit("shop", "max-bindings", 9),
    SetGlobalParameter("cluster_name", "a cluster"),
    SetGlobalParameter("odd", {"list": [1, 2.5, None, True, "é"]}),
    ClearGlobalParameter("odd"),
    ClearGlobalParameter("missing"),
    DeclareExchange(ExchangeDefinition("/", "direct", durable=True, arguments=ODD)),
    DeclareExchange(ExchangeDefinition("/", "passing", "topic", auto_delete=True, internal=True)),
    DeclareExchange(ExchangeDefinition("/", "ring", "x-consistent-hash", durable=True)),
    DeclareExchange(
        ExchangeDefinition(
            "/", "delayed", "x-delayed-message", True, arguments=Arguments([Field("x-delayed-type", "S", "topic")])
        )
    ),
    queue("kept", durable=True, arguments=Arguments([Field("x-max-length", "I", 7)]), user="ann"),
    queue("transient", auto_delete=True),
    queue("exclusive", exclusive=True, owner="connection 1"),
    queue("remote", home=2, durable=True),
    queue("of the third", home=3, durable=True),
    queue("going", home=3),
    queue("going, too", home=2),
    queue("numbered", durable=True, id=FIRST | 50),
    queue("numbered again", durable=True, id=FIRST | 50),
    DeclareQueue(QueueDefinition("/", "amq.gen-1"), server_named=True),
    bind("direct", "kept", b"\xff.*"),
    bind("passing", "transient", b"#"),
    bind("ring", "kept", b"3"),
    bind("ring", "remote", b"2"),
    Bind("/", Binding("direct", "exchange", "passing"), "connection 1"),
    bind("missing", "kept"),
    Unbind("/", Binding("ring", "queue", "remote", b"2", ODD), "connection 1"),
    Unbind("/", Binding("passing", "queue", "transient", b"#", ODD)),
    SetPolicy("/", "short", "^k", {"max-length": 4, "odd": ["é"]}, 2, "queues"),
    SetPolicy("/", "short", "^k", {"max-length": 4}, 2.5, "queues"),
    SetPolicy("/", "sharded", "^direct", {"shards-per-node": 1, "routing-key": "2"}),
    SetOperatorPolicy("/", "bound", ".*", {"max-length": 100}, -1, "all"),
    ClearPolicy("/", "short"),
    ClearPolicy("/", "sharded"),
    ClearOperatorPolicy("/", "bound"),
    SetOperatorPolicy("shop", "bound", ".*", {"max-length": 100}),
    MoveQueue("/", "kept", FIRST | 2, 2),
    EndMove("/", "kept", SECOND | 4),
    MoveQueue("/", "remote", SECOND | 1, 7),
    DeleteQueue("/", "numbered", FIRST | 50),
    DeleteExchange("/", "ring", True),
    DeleteExchange("/", "ring"),
    DeleteExchange("/", "amq.direct"),
    HomeDown(2, (SECOND | 2, SECOND | 9)),
    LeaveHome(2),
    LeaveHome(2, leaves=False),
    LeaveHome(3),
    RemoveHome(3),
    MoveQueue("/", "of the third", THIRD | 1, 1),
    EndMove("/", "of the third", FIRST | 53),
    DeleteQueue("/", "sharding: direct - three@host - 0", THIRD | 3),
    RemoveHome(3),
    ForgetNode("two@host"),
    ForgetNode("three@host"),
    AddHome(2, "two@host"),
    DeleteUser("bo\udcff"),
    DeleteVirtualHost("shop"),
]


class _Written:
    """Records that the topology hands to the journal, in order."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def put(self, kind: str, key: str, value: Any) -> None:
        self.put_text(kind, key, json_text(value))

    def put_text(self, kind: str, key: str, value: str) -> None:
        self.calls.append(["put", kind, key, value])

    def delete(self, kind: str, key: str) -> None:
        self.calls.append(["delete", kind, key])

    def change(self, definitions: Definitions) -> None:
        self.calls += [["delete", *key] for key in sorted(definitions.removed)]
        self.calls += [["put", *key, text] for key, text in definitions.put.items()]

    def drop_queue(self, queue_id: int) -> None:
        self.calls.append(["drop", str(queue_id)])


def lines() -> Iterator[dict[str, Any]]:
    """Return changes in JSON, with refusal or "", and the records in the store of one process, and of several."""
    written = {"alone": _Written(), "shared": _Written()}
    topologies = {
        name: Topology("one@host", journal, shared=name == "shared")  # type: ignore[arg-type]  # without messages
        for name, journal in written.items()
    }
    for change in CHANGES:
        text = json_text(change.to_json())
        assert Change.from_json(json.loads(text)) == change
        line: dict[str, Any] = {"change": text, "outcome": set()}
        for name, topology in topologies.items():
            try:
                topology.apply(change)
                line["outcome"].add("")
            except AMQPError as error:
                line["outcome"].add(error.reply_text)
            topology.flush_rings()
            line[name] = written[name].calls
            written[name].calls = []
        (line["outcome"],) = line["outcome"]
        yield line


if __name__ == "__main__":
    with PATH.open("w") as file:
        for line in lines():
            file.write(json_text(line) + "\n")
