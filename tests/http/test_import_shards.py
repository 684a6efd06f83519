"""Shards in a definitions file of a RabbitMQ node become JumpMQ's shards, and no key moves."""

from __future__ import annotations

import json
from typing import Any

import jumpmq
from jumpmq.hashing import HashRing

JSON = {"Content-Type": "application/json"}
SHARDED = {"shards-per-node": 1}
EXCHANGES = {"h": "x-consistent-hash", "m": "x-modulus-hash"}


def definitions(nodes: list[str], shards: int = 2, exchanges: dict[str, str] | None = None) -> dict[str, Any]:
    """An export of RabbitMQ with sharded exchanges; the order of bindings differs from the order of names."""
    made = EXCHANGES if exchanges is None else exchanges
    names = [(x, f"sharding: {x} - {node} - {n}") for x in made for node in nodes for n in range(shards)]
    declared = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    bound = {"vhost": "/", "destination_type": "queue", "routing_key": "2", "arguments": {}}
    definition = {"shards-per-node": shards, "routing-key": "2"}
    return {
        "product_name": "RabbitMQ",
        "policies": [{"vhost": "/", "name": "p", "pattern": "^[hm]$", "apply-to": "all", "definition": definition}],
        "queues": [{"name": name, **declared} for _, name in names],
        "exchanges": [{"name": name, "type": kind, **declared} for name, kind in made.items()],
        "bindings": [{"source": x, "destination": name, **bound} for x, name in reversed(names)],
    }


def imported(api: Any, found: dict[str, Any]) -> dict[str, Any]:
    answer = api.request("POST", "definitions", json=found)
    assert answer.status_code in (200, 204), answer.text
    return answer.json() if answer.content else {}


def shards(api: Any, exchange: str) -> list[str]:
    return [one["name"] for one in api.get("exchanges", "/", exchange, "shards")]


def ring(api: Any, exchange: str) -> list[tuple[str, list[list[int]]]]:
    return [(one["destination"], one["runs"]) for one in api.get("exchanges", "/", exchange, "ring")["destinations"]]


def test_shards_of_one_node_get_this_ones_name_and_the_ring_stays(api: Any, channel: Any) -> None:
    found = definitions(["rabbit@a"], 3)
    node = api.get("overview")["node"]
    told = imported(api, found)
    for exchange in EXCHANGES:
        assert shards(api, exchange) == [f"sharding: {exchange} - {node} - {n}" for n in range(3)]
    assert [name for name, _ in ring(api, "h")] == [f"sharding: h - {node} - {n}" for n in (2, 1, 0)]
    assert len(api.get("queues")) == 6
    assert len(api.get("exchanges", "/", "m", "bindings", "source")) == 3
    assert {"vhost": "/", "from": "sharding: h - rabbit@a - 2", "to": f"sharding: h - {node} - 2"} in told["renamed"]
    assert told["notes"] == []
    assert imported(api, found) == told
    assert len(api.get("queues")) == 6
    for _ in range(3):
        channel.basic_consume("h", lambda *_: None)
    assert [one["consumers"] for one in api.get("exchanges", "/", "h", "shards")] == [1, 1, 1]


def test_shards_of_several_nodes_are_all_on_this_one(api: Any) -> None:
    """Shards of several nodes are imported to this node in order of their names, which x-modulus-hash uses."""
    told = imported(api, definitions(["rabbit@b", "rabbit@a"], 6))
    node = api.get("overview")["node"]
    new = {(one["from"]): one["to"] for one in told["renamed"]}
    for exchange in EXCHANGES:
        mine = {old: name for old, name in new.items() if old.startswith(f"sharding: {exchange} ")}
        assert sorted(mine.values()) == sorted(f"sharding: {exchange} - {node} - {n}" for n in range(12))
        assert [mine[old] for old in sorted(mine)] == sorted(mine.values())
    old = HashRing()
    for name in reversed([f"sharding: h - {of} - {n}" for of in ("rabbit@b", "rabbit@a") for n in range(6)]):
        old.add(name, 2)
    assert ring(api, "h") == [(new[name], [list(run) for run in runs]) for name, runs in old.runs().items()]
    assert api.get("policies", "/", "p")["definition"]["shards-per-node"] == 12
    assert told["notes"] == ["policy 'p' in vhost '/': shards-per-node is 12, not 6"]


def test_queues_that_only_look_like_shards_stay_as_they_are(api: Any) -> None:
    found = definitions(["rabbit@a"], 1, {"h": "x-consistent-hash"})
    plain = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    names = [
        "sharding: gone - rabbit@a - 0",  # no such exchange
        "sharding: h - rabbit@a - 01",
        "sharding: h - rabbit@a - " + "9" * 200,
        "sharding: h - nonode - 0",
        "sharding: h - - 0",
    ]
    found["queues"] += [{"name": name, **plain} for name in names]
    told = imported(api, found)
    assert [one["from"] for one in told["renamed"] if one["from"] in names] == [names[2]]
    queues = {one["name"] for one in api.get("queues")}
    assert queues >= {names[0], names[1], *names[3:]}


HARMS: list[dict[str, Any]] = [
    {"policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"shards-per-node": 1}}]},
    {"policies": [{"vhost": "/", "name": "p", "pattern": "h", "definition": {"shards-per-node": -1}}]},
    {"policies": [{"vhost": [], "name": {}, "pattern": "h", "definition": {"shards-per-node": 1}}]},
    {
        "policies": [
            {"policies": [{"vhost": "/", "name": "p", "pattern": "h", "definition": [1]}]},
            {"vhost": "/", "name": "p", "pattern": "h", "priority": {}, "definition": {"shards-per-node": 1}},
        ]
    },
    {"queues": [{"vhost": "/", "name": "sharding: h - rabbit@\ud800 - 0"}]},
    {"queues": [{"vhost": "/", "name": 7}, None]},
    {"queues": {"name": "x"}},
    {"bindings": [{"vhost": "/", "source": "h", "destination": None}]},
    {"exchanges": [{"vhost": "/", "name": ["h"], "type": "fanout"}]},
]


def test_a_malformed_file_is_refused_as_before_and_changes_nothing(api: Any) -> None:
    for harm in HARMS:
        found = definitions(["rabbit@a", "rabbit@b"], 2, {"h": "x-consistent-hash"})
        for section, entries in harm.items():
            found[section] = [*found[section], *entries] if isinstance(entries, list) else entries
        answer = api.request("POST", "definitions", data=json.dumps(found), headers=JSON)
        assert answer.status_code == 400, (harm, answer.text)
        assert "reason" in answer.json()
        assert api.get("queues") == []
        assert api.get("policies") == []


def test_a_file_of_jumpmq_with_several_nodes_stays_as_it_is(api: Any) -> None:
    """JumpMQ's own file with shards of several nodes is imported unchanged: the nodes may join later."""
    found = definitions(["one@host", "two@host"], 1) | {"product_name": "JumpMQ"}
    assert imported(api, found) == {}
    assert {one["name"] for one in api.get("queues")} >= {"sharding: h - one@host - 0", "sharding: h - two@host - 0"}


def test_a_backup_goes_to_a_host_of_another_name(api: Any, tmp_path: Any) -> None:
    imported(api, definitions(["rabbit@a"], 2))
    with jumpmq.running(data_dir=tmp_path / "other", node="other@host") as other:
        from tests.http.api import API

        there = API(other.http_url)
        exported = api.get("definitions")
        assert len(imported(there, exported)["renamed"]) == 4
        assert shards(there, "h") == ["sharding: h - other@host - 0", "sharding: h - other@host - 1"]
        assert [runs for _, runs in ring(there, "h")] == [runs for _, runs in ring(api, "h")]
