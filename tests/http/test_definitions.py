"""Definitions files: RabbitMQ's format for import and export, and atomic imports."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.api import API

RABBITMQ = {
    "rabbit_version": "3.10.8",
    "rabbitmq_version": "3.10.8",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "users": [
        {
            "name": "alice",
            "password_hash": "41942Luh0MTwvVUTDvxJVRD7RkHcPQX991Xx3NUbcwRO6t7u",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring"],
            "limits": {"max-channels": 7},
        }
    ],
    "vhosts": [{"name": "/"}, {"name": "v1"}],
    "permissions": [{"user": "alice", "vhost": "v1", "configure": "^a", "write": ".*", "read": ""}],
    "topic_permissions": [
        {"user": "alice", "vhost": "v1", "exchange": "amq.topic", "write": "^{username}", "read": "^a"}
    ],
    "parameters": [
        {
            "value": {"max-connections": 50, "max-queues": 1000},
            "vhost": "v1",
            "component": "vhost-limits",
            "name": "limits",
        },
        {
            "value": {"apply-to": "queues", "definition": {"max-length": 9}, "pattern": "^q", "priority": 0},
            "vhost": "v1",
            "component": "operator_policy",
            "name": "limit",
        },
    ],
    "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-Pohq0_nCT8oLgdPTvymYHw"}],
    "policies": [
        {
            "vhost": "v1",
            "name": "sharded",
            "pattern": "^shard",
            "apply-to": "exchanges",
            "definition": {"shards-per-node": 2, "routing-key": "1"},
            "priority": 1,
        }
    ],
    "queues": [
        {"name": "q2", "vhost": "v1", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 10}},
        {"name": "amq.gen-x", "vhost": "v1", "durable": True, "auto_delete": False, "arguments": {}},
    ],
    "exchanges": [
        {
            "name": "h1",
            "vhost": "v1",
            "type": "x-consistent-hash",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"hash-header": "x"},
        },
        {"name": "shard.images", "vhost": "v1", "type": "x-modulus-hash", "durable": True, "arguments": {}},
    ],
    "bindings": [
        {
            "source": "h1",
            "vhost": "v1",
            "destination": "q2",
            "destination_type": "queue",
            "routing_key": "3",
            "arguments": {},
        }
    ],
}
"""An export of RabbitMQ 3.10."""


def everything(api: API) -> dict[str, list[str]]:
    """The definitions without the versions."""
    found = api.get("definitions")
    return {name: sorted(map(repr, entries)) for name, entries in found.items() if isinstance(entries, list)}


def test_a_file_of_rabbitmq_loads(api: API) -> None:
    assert api.request("POST", "definitions", json=RABBITMQ).status_code == 204
    found = api.get("definitions")
    for name in ("permissions", "topic_permissions", "parameters", "policies"):
        assert all(entry in found[name] for entry in RABBITMQ[name]), name
    assert RABBITMQ["users"][0] in found["users"]
    assert {queue["name"] for queue in api.get("queues", "v1")} >= {"q2", "amq.gen-x"}
    assert len(api.get("exchanges", "v1", "shard.images", "bindings", "source")) == 2
    assert api.get("bindings", "v1", "e", "h1", "q", "q2")[0]["routing_key"] == "3"


def test_an_export_loads_into_an_empty_broker_and_is_the_same(api: API, tmp_path: Path) -> None:
    from tests.http.api import API

    import jumpmq

    api.request("POST", "definitions", json=RABBITMQ)
    with jumpmq.running() as other:
        second = API(other.http_url)
        assert second.request("POST", "definitions", json=api.get("definitions")).status_code == 204
        assert everything(second) == everything(api)


def test_importing_twice_changes_nothing(api: API) -> None:
    api.request("POST", "definitions", json=RABBITMQ)
    before = everything(api)
    assert api.request("POST", "definitions", json=api.get("definitions")).status_code == 204
    assert everything(api) == before


def test_one_virtual_host_goes_into_another(api: API) -> None:
    api.request("POST", "definitions", json=RABBITMQ)
    api.request("PUT", "vhosts", "v2")
    exported = api.get("definitions", "v1")
    assert "users" not in exported
    assert api.request("POST", "definitions", "v2", json=exported).status_code == 204
    for entry in exported["policies"] + exported["parameters"]:  # as in RabbitMQ's export
        assert entry.pop("vhost") == "v1"
    imported = api.get("definitions", "v2")
    for entry in imported["policies"] + imported["parameters"]:
        assert entry.pop("vhost") == "v2"
    assert imported == exported


@pytest.mark.parametrize(
    ("section", "entry", "reason"),
    [
        ("queues", {"name": "q", "vhost": "nowhere"}, "queues[2]: vhost nowhere not found"),
        ("queues", {"name": "q"}, "queues[2]: key 'vhost' is missing"),
        ("queues", {"name": "q", "vhost": "v1", "durable": "maybe"}, "queues[2]: 'durable' must be true or false"),
        ("queues", {"name": "q", "vhost": "v1", "arguments": {"x-expires": 0}}, "queues[2]: invalid arg 'x-expires'"),
        ("queues", "q", "queues[2]: expected an object, not 'q'"),
        ("exchanges", {"name": "e", "vhost": "v1", "type": "nope"}, "exchanges[2]: unknown exchange type 'nope'"),
        ("bindings", {"source": "h1", "vhost": "v1", "destination": "q3"}, "bindings[1]: no queue 'q3' in vhost 'v1'"),
        (
            "bindings",
            {"source": "h1", "vhost": "v1", "destination": "q2", "routing_key": "x"},
            "bindings[1]: The binding key must be an integer",
        ),
        ("policies", {"vhost": "v1", "name": "p", "pattern": "(", "definition": {}}, "policies[1]: "),
        ("users", {"name": "u", "password_hash": "zz", "tags": []}, "users[1]: password hash 'zz' is not base64"),
        ("permissions", {"user": "nobody", "vhost": "/"}, "permissions[1]: key 'configure' is missing"),
        ("parameters", {"component": "vhost-limits", "vhost": "/", "name": "limits"}, "parameters[2]: key 'value'"),
        ("topic_permissions", {"user": "alice"}, "topic_permissions[1]: key 'vhost' is missing"),
    ],
)
def test_a_file_with_one_wrong_entry_changes_nothing(
    api: API, section: str, entry: dict[str, Any] | str, reason: str
) -> None:
    api.request("PUT", "users", "alice", json={"password": "x", "tags": "administrator"})
    before = everything(api)
    wrong = {**RABBITMQ, section: [*RABBITMQ[section], entry]}
    response = api.request("POST", "definitions", json=wrong)
    assert response.status_code == 400
    assert reason in response.json()["reason"]
    assert everything(api) == before


def test_what_means_nothing_here_is_skipped_and_told(api: API) -> None:
    shovel = {"component": "shovel", "vhost": "v1", "name": "s", "value": {"src-uri": "amqp://"}}
    found = {
        "users": [],
        "bonsai_trees": [{"name": "oak"}],
        "vhosts": [{"name": "v1", "description": "first", "tags": ["a", "b"], "colour": "red"}],
        "parameters": [shovel, shovel | {"component": "federation-upstream"}],
        "global_parameters": [{"name": "cluster_name", "value": "blue"}, {"name": "mine", "value": {"a": [1, None]}}],
        "queues": [{"name": "q", "vhost": "v1", "colour": 1}],
    }
    answer = api.post("definitions", body=found)
    told = [
        "key 'bonsai_trees'",
        "vhosts[0]: key 'colour'",
        "parameters[0]: shovel 's' is not run: `jumpmq migrate --follow` replaces shovels",
        "parameters[1]: component 'federation-upstream'",
        "queues[0]: key 'colour'",
    ]
    assert answer == {"skipped": told, "skipped_count": 5}
    assert api.get("queues", "v1", "q")["name"] == "q"
    assert (api.get("vhosts", "v1")["description"], api.get("vhosts", "v1")["tags"]) == ("first", ["a", "b"])
    assert api.get("cluster-name") == {"name": "blue"}
    exported = api.get("definitions")
    assert exported["global_parameters"] == found["global_parameters"]
    assert {"name": "v1", "description": "first", "tags": ["a", "b"]} in exported["vhosts"]


def test_an_undone_import_leaves_rings_and_replaced_definitions_as_they_were(api: API) -> None:
    api.request("POST", "definitions", json=RABBITMQ)
    api.request("PUT", "exchanges", "v1", "fleeting", json={"auto_delete": True})
    before = everything(api)
    binding = {"source": "h1", "vhost": "v1", "destination": "amq.gen-x", "routing_key": "2"}
    wrong = {
        "users": [{"name": "alice", "password_hash": "", "tags": []}],
        "permissions": [{"user": "alice", "vhost": "v1", "configure": "", "write": "", "read": ""}],
        "policies": [{"vhost": "v1", "name": "sharded", "pattern": "x", "definition": {"shards-per-node": 5}}],
        "bindings": [binding, {**binding, "source": "fleeting"}, {**binding, "destination": "nothing"}],
    }
    assert api.request("POST", "definitions", json=wrong).status_code == 400
    assert everything(api) == before


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"queues": 1}', b'{"users": [{"name": "\\ud800"}]}'])
def test_what_is_no_definitions_file_is_refused(api: API, body: bytes) -> None:
    assert (
        api.request("POST", "definitions", data=body, headers={"Content-Type": "application/json"}).status_code == 400
    )
