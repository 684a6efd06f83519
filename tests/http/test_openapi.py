"""The OpenAPI document describes the routes, and no conforming request makes the broker fail."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from tests.generating import examples
from tests.http.api import API

from jumpmq import RunningBroker
from jumpmq.http import application

ROUTES = [route for resource in application.API for route in resource.ROUTES]


def test_every_route_is_described_and_nothing_else(api: API) -> None:
    document = api.get("openapi.json")
    described = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
    routes = [route for route in ROUTES if isinstance(route, Route)]
    served = {(verb, route.path) for route in routes for verb in (route.methods or set()) - {"HEAD"}}
    assert described == served
    assert document["openapi"].startswith("3.1")


def test_an_operation_says_its_names_its_body_and_who_may(api: API) -> None:
    operation = api.get("openapi.json")["paths"]["/api/permissions/{vhost}/{user}"]["put"]
    assert [parameter["name"] for parameter in operation["parameters"]] == ["vhost", "user"]
    assert operation["summary"].startswith("set the permissions of a user in a virtual host")
    assert operation["description"] == "For users with one of the tags administrator."
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["configure", "write", "read"]
    assert schema["additionalProperties"] is False


def test_the_bodies_that_the_document_asks_for_are_the_ones_that_are_read(api: API) -> None:
    """A missing required key, and an unknown key, are refused wherever a body is described."""
    api.request("PUT", "queues", "/", "{queue}", json={})
    for path, verbs in api.get("openapi.json")["paths"].items():
        for verb, operation in verbs.items():
            if "requestBody" in operation:
                place = [part.replace("%2F", "/") for part in re.sub(r"{vhost}", "%2F", path).split("/")[2:]]
                response = api.request(verb.upper(), *place, json={"no such key": 1})
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                refused = response.status_code in (400, 404)  # some check the objects in the path first
                assert refused is not schema["additionalProperties"], (verb, path, response.text)


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["administrator", "monitoring,policymaker"])
def test_schemathesis_finds_no_server_error(api: API, broker: RunningBroker, tmp_path: Path, tag: str) -> None:
    """A bounded run over all operations, with conforming and non-conforming requests.

    The user is an administrator, or has all other rights; the latter must not change administrators' objects.
    """
    pytest.importorskip("schemathesis", reason="schemathesis is not installed (pip install schemathesis)")
    api.request("PUT", "users", "tester", json={"password": "secret", "tags": tag})
    api.request("PUT", "permissions", "/", "tester", json=dict.fromkeys(("configure", "write", "read"), ".*"))
    before = administered(api)
    finished = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{api.address}/api/openapi.json"),
            *("--auth", "tester:secret", "--checks", "not_a_server_error", "--mode", "all", "--seed", "1"),
            *(
                "--phases",
                "coverage,fuzzing" if tag == "administrator" else "fuzzing",
                "--max-examples",
                str(examples(4)),
            ),
            *("--no-shrink", "--suppress-health-check", "all"),
            # a failed check answers 503; other excluded requests end only with their client
            *("--exclude-path-regex", "/api/health/checks/(port|protocol)-listener|/attend$"),
            *("--exclude-operation-id", "delete /api/users/{user}"),
        ],
        cwd=tmp_path,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr
    if tag != "administrator":
        assert administered(api) == before


def administered(api: API) -> dict[str, Any]:
    """Objects that only administrators may change."""
    kinds = ("users", "permissions", "topic-permissions", "operator-policies", "vhost-limits", "user-limits")
    return {kind: api.get(kind) for kind in kinds} | {"vhosts": [one["name"] for one in api.get("vhosts")]}
