"""Logs of definitions that a release has decided, with their outcomes: later releases must decide them alike.

``python -m tests.topology.golden NAME`` draws changes, decides them, and keeps them as the log of a release.
An existing log is not made again: rules that decide a log otherwise need another version of the log's format.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.topology import (
    AddHome,
    AddVirtualHost,
    Arguments,
    Bind,
    Binding,
    Change,
    ClearPolicy,
    ConsistentHashExchange,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    ExchangeDefinition,
    ForgetNode,
    PutUser,
    SetPolicy,
    SetUserLimit,
    SetVirtualHostLimit,
    Topology,
    Unbind,
)
from jumpmq.topology.json_form import to_json

LOGS = Path(__file__).parents[1] / "data" / "definitions-log"
NODES = ["one@host", "two@elsewhere", "three@host"]


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Return the entries of a log.

    ``change`` is JSON, ``outcome`` the refusal or "", ``queues`` the number and name of each new queue. The
    last entry has ``rings`` and ``bindings`` of the end instead.
    """
    with path.open() as lines:
        yield from map(json.loads, lines)


def decided(topology: Topology, change: dict[str, Any]) -> dict[str, Any]:
    """Decide an entry's change; return the entry with the new outcome."""
    before = {queue.id for host in topology.vhosts.values() for queue in host.declared.values()}
    try:
        topology.apply(Change.from_json(change))
        outcome = ""
    except AMQPError as error:
        outcome = error.reply_text
    queues = [(queue.id, name) for host in topology.vhosts.values() for name, queue in host.declared.items()]
    return {"change": change, "outcome": outcome, "queues": [list(one) for one in queues if one[0] not in before]}


def end(topology: Topology) -> dict[str, Any]:
    """Return the routing state after a log: hash rings, bit for bit, and bindings in order."""
    exchanges = [one for host in topology.vhosts.values() for one in host.exchanges.values() if one.name]
    return {
        "rings": [[one.name, one.ring.state()] for one in exchanges if isinstance(one, ConsistentHashExchange)],
        "bindings": [[one.name, [to_json(binding) for binding in one.bindings]] for one in exchanges],
    }


def _drawn(chance: Random, topology: Topology) -> Change:
    """Return a random client's change; some changes are refused."""
    queue, exchange = f"q{chance.randrange(12)}", chance.choice(["ring", "shifting", "spread", "x"])
    home = chance.choice([1, 2, 3])
    key = chance.choice([b"1", b"2", b"7", b"0", b"key"])
    binding = Binding(exchange, "queue", queue, key)
    declared = topology.vhost("/").declared.get(queue)
    match chance.choices(range(8), (6, 8, 4, 2, 3, 1, 1, 2))[0]:
        case 0:
            flags: dict[str, Any] = {name: chance.random() < 0.5 for name in ("durable", "auto_delete")}
            return DeclareQueue(topology.define_queue("/", queue, **flags, home=home, user="ann"))
        case 1:
            return Bind("/", binding, user="ann")
        case 2:
            bound = list(topology.vhost("/").exchanges[exchange].bindings) if exchange != "x" else []
            return Unbind("/", chance.choice(bound) if bound else binding)
        case 3:
            return DeleteQueue("/", queue, 0 if declared is None else declared.id)
        case 4:
            definition = {"shards-per-node": chance.randrange(4), "routing-key": chance.choice(["1", "3", "heavy"])}
            return SetPolicy("/", chance.choice("pq"), f"^{exchange}", definition, chance.randrange(3))
        case 5:
            return ClearPolicy("/", chance.choice("pq"))
        case 6:
            node = NODES[home - 1]
            return AddHome(home, node) if chance.random() < 0.8 else ForgetNode(node)
    limit, value = chance.choice(["max-queues", "max-bindings"]), chance.choice([-1, 30])
    return chance.choice([SetVirtualHostLimit("/", limit, value), SetUserLimit("ann", limit, value)])


def _make(name: str) -> None:
    chance, topology = Random(1), Topology(NODES[0])
    wanted: list[Change] = [AddHome(home, node) for home, node in enumerate(NODES, 1)]
    wanted += [AddVirtualHost("/"), PutUser("ann", "", ("monitoring",))]
    shifting = Arguments.of({"ring-removal": "shift"})
    wanted += [
        DeclareExchange(ExchangeDefinition("/", "ring", "x-consistent-hash", durable=True)),
        DeclareExchange(ExchangeDefinition("/", "shifting", "x-consistent-hash", arguments=shifting)),
        DeclareExchange(ExchangeDefinition("/", "spread", "x-modulus-hash", durable=True)),
    ]
    with (LOGS / f"{name}.jsonl").open("x") as file:
        for number in range(400):
            change = wanted[number] if number < len(wanted) else _drawn(chance, topology)
            file.write(json.dumps(decided(topology, change.to_json())) + "\n")
        file.write(json.dumps(end(topology)) + "\n")


if __name__ == "__main__":
    LOGS.mkdir(parents=True, exist_ok=True)
    _make(sys.argv[1])
