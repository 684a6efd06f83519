"""Permissions for policies over HTTP, and persistence of policies."""

from pathlib import Path
from typing import Any

import pytest
import requests
from tests.http.api import API

import jumpmq

LIMIT: dict[str, Any] = {"pattern": "^q$", "definition": {"max-length": 1}}


@pytest.mark.parametrize(
    ("tags", "kind", "status"),
    [
        ("management", "policies", 401),
        ("policymaker", "policies", 201),
        ("policymaker", "operator-policies", 401),
        ("administrator", "operator-policies", 201),
    ],
)
def test_who_may_set_policies(api: API, tags: str, kind: str, status: int) -> None:
    api.request("PUT", "users", "ann", json={"password": "secret", "tags": tags})
    api.request("PUT", "permissions", "/", "ann", json={"configure": ".*", "write": ".*", "read": ".*"})
    answer = requests.put(f"{api.address}/api/{kind}/%2F/p", json=LIMIT, auth=("ann", "secret"), timeout=30)
    assert answer.status_code == status
    assert len(api.get(kind, "/")) == (status == 201)


def test_policies_survive_the_broker(tmp_path: Path) -> None:
    with jumpmq.running(data_dir=tmp_path) as broker:
        api = API(broker.http_url)
        assert api.request("PUT", "policies", "/", "p", json=LIMIT).status_code == 201
        assert api.request("PUT", "operator-policies", "/", "o", json=LIMIT).status_code == 201
        assert api.request("DELETE", "operator-policies", "/", "o").status_code == 204
    with jumpmq.running(data_dir=tmp_path) as broker:
        api = API(broker.http_url)
        assert api.get("policies", "/", "p") == {
            "vhost": "/", "name": "p", "apply-to": "all", "priority": 0, **LIMIT,
        }  # fmt: skip
        assert api.get("operator-policies") == []


@pytest.mark.parametrize("body", ["{", "[]", "5", '{"pattern": "^q$", "definition": "x"}', '{"pattern": null}'])
def test_wrong_bodies_are_refused(api: API, body: str) -> None:
    answer = api.request("PUT", "policies", "/", "p", data=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "bad_request"


def test_queues_and_exchanges_tell_which_policy_is_in_force(api: API) -> None:
    api.request("PUT", "queues", "/", "q", json={})
    api.request("PUT", "policies", "/", "short", json={"pattern": "^(q|amq.fanout)$", "definition": {"max-length": 5}})
    api.request("PUT", "operator-policies", "/", "shorter", json=LIMIT)
    queue, exchange = api.get("queues", "/", "q"), api.get("exchanges", "/", "amq.fanout")
    assert (queue["policy"], queue["operator_policy"]) == ("short", "shorter")
    assert queue["effective_policy_definition"] == {"max-length": 1}
    assert (exchange["policy"], exchange["effective_policy_definition"]) == ("short", {"max-length": 5})
    assert api.get("exchanges", "/", "amq.direct")["policy"] is None
