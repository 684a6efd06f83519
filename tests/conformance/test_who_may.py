"""Permissions over HTTP: every endpoint and method with every tag, on both brokers.

``who_may.txt`` is the table. A row with a path not served by JumpMQ is RabbitMQ's alone. Endpoints of JumpMQ alone are
in the table here.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import requests
from tests.conformance.operator import Operator
from tests.waiting import until
from tests.wire import closing, login

from jumpmq.testing import HOST, BrokerProcess, JumpMQ

TAGS = ("untagged", "management", "policymaker", "monitoring", "administrator")
PASSWORD = "secret"
OURS = """
GET /api/health/checks/definitions       401 200 200 200 200
GET /api/health/checks/moves             401 200 200 200 200
GET /api/openapi.json                     401 200 200 200 200
GET /api/exchanges/here/h/ring            401 401 401 200 200
GET /api/exchanges/here/h/flow            401 401 401 200 200
GET /api/exchanges/here/none/shards       401 401 404 404 404
GET /api/queues/here/q/slots              401 200 200 200 200
GET /api/queues/here/q/explain            401 200 200 200 200
POST /api/queues/here/q/retries           401 200 200 200 200 {}
POST /api/queues/here/q/contents/move     401 400 400 400 400 {}
POST /api/queues/here/q/contents/delete   401 400 400 400 400 {}
GET /api/queues/here/q/browse             401 200 200 200 200
DELETE /api/queues/here/q/messages/1      401 400 400 400 400
GET /api/queues/here/q/deaths             401 200 200 200 200
GET /api/queues/here/q/messages           401 200 200 200 200
GET /api/readers/here/g                   401 200 200 200 200
DELETE /api/readers/here/g                401 404 404 404 404
POST /api/readers/here/g/renew            401 204 204 204 204
POST /api/readers/here/g/reserve          401 200 200 200 200 {"queues": {}}
POST /api/readers/here/g/commit           401 204 204 204 204 {"queues": {}}
GET /api/readers/here/g/queues/q/messages 401 400 400 400 400
GET /api/readers/here                      401 200 200 200 200
POST /api/readers/here/g/open             401 400 400 400 400 {"query": ""}
POST /api/readers/here/g/attend           401 400 400 400 400 {"session": 1}
POST /api/readers/here/g/read             401 400 400 400 400 {}
POST /api/ranges/here                     401 200 200 200 200 {}
POST /api/messages/here                   401 400 400 400 400 {}
POST /api/messages/here/publish            401 400 400 400 400 {}
GET /api/messages/here/writers/w          401 200 200 200 200
DELETE /api/messages/here/writers/w       401 204 204 204 204
GET /api/topic-permissions/here/guest/amq.topic 401 401 401 401 404
DELETE /api/topic-permissions/here/guest/amq.topic 401 401 401 401 404
GET /api/connections/username/nobody      401 200 200 200 200
DELETE /api/connections/username/nobody   401 204 204 204 204
GET /api/auth                             401 200 200 200 200
POST /api/preview/policies/here/p         401 401 200 401 200 {"pattern": "x", "definition": {"max-length": 5}}
PUT /api/messages/here/writers/w            401 204 204 204 204
POST /api/messages/here/writers/w/begin     401 400 400 400 400 {}
GET /api/messages/here/writers/w/batches/1  401 200 200 200 200
POST /api/messages/here/writers/w/complete  401 400 400 400 400 {}
GET /api/unread/here                        401 200 200 200 200
GET /api/preview/policies/here/none/cleared 401 401 404 401 404
POST /api/preview/operator-policies/here/p 401 401 401 401 200 {"pattern": "x", "definition": {"max-length": 5}}
GET /api/preview/operator-policies/here/none/cleared 401 401 401 401 404
POST /api/preview/definitions             401 401 401 401 200 {}
GET /api/consumer-groups                  401 200 200 200 200
GET /api/consumer-groups/here             401 200 200 200 200
DELETE /api/consumer-groups/here/queue/q/g/members/m 401 401 401 401 404
GET /api/group-offsets                    401 200 200 200 200
GET /api/group-offsets/here               401 200 200 200 200
PUT /api/group-offsets/here/q/g           401 400 400 400 400 {"offset": "first"}
DELETE /api/group-offsets/here/q/g        401 400 400 400 400
GET /api/fences                           401 200 200 200 200
GET /api/fences/here                      401 200 200 200 200
DELETE /api/fences/here/q/other           401 404 404 404 404
GET /api/readers                          401 200 200 200 200
GET /api/exchanges/here/h/ring/traffic    401 401 401 200 200
GET /api/exchanges/here/h/key?key=x       401 401 401 200 200
GET /api/exchanges/there/h/ring           401 401 401 401 404
GET /api/exchanges/there/h/key?key=x      401 401 401 401 404
POST /api/exchanges/there/h/ring/changes  401 401 401 401 404 {}
POST /api/exchanges/there/h/ring/what-if  401 401 401 401 404 {}
DELETE /api/consumer-groups/there/queue/q/g/members/m 401 401 401 401 404
POST /api/exchanges/here/h/ring/what-if   401 401 400 400 400 {}
POST /api/exchanges/here/h/ring/changes   401 400 400 400 400 {}
GET /api/warnings                         401 401 401 200 200
GET /api/incidents                        401 401 401 200 200
GET /api/history                          401 401 401 200 200
GET /api/history/vhosts/here              401 401 401 200 200
GET /api/history/nodes/{node}             401 401 401 200 200
GET /api/history/queues/here/q            401 200 200 200 200
GET /api/history/exchanges/here/x         401 200 200 200 200
GET /api/history/connections/none         401 404 404 404 404
GET /api/history/channels/none            401 404 404 404 404
GET /api/log                              401 401 401 401 200
GET /api/users/guest/allowed/here/q       401 401 401 401 200
GET /metrics                              401 401 401 200 200
GET /metrics/per-object                   401 401 401 200 200
GET /metrics/detailed                     401 401 401 200 200
GET /api/nodes/{node}/contents            401 401 401 200 200
DELETE /api/nodes/{node}                  401 401 401 401 400
GET /api/nodes/{node}/environment         401 401 401 401 200
PUT /api/nodes/{node}/log-level           401 401 401 401 204 {"level": "info"}
PUT /api/nodes/{node}/listeners           401 401 401 401 204 {"suspended": false}
PUT /api/nodes/{node}/limits              401 401 401 401 204 {}
GET /api/losses                           401 401 401 200 200
DELETE /api/losses                        401 401 401 401 204
GET /api/workers                          401 401 401 200 200
PUT /api/workers                          401 401 401 401 400 {"count": 2}
GET /api/copies                           401 401 401 200 200
GET /api/copies/99                        401 401 401 404 404
PUT /api/copies/99                        401 401 401 401 404 {"copies": 1}
PUT /api/copies/99/leader                 401 401 401 401 404 {"node": "n"}
DELETE /api/copies/99/leader              401 401 401 401 404
GET /api/copies/99/check                  401 401 401 404 404
GET /api/copies/99/positions               401 401 401 404 404
POST /api/copies/99/check                 401 401 401 401 404
POST /api/queues/quorum/replicas/on/n/grow 401 401 401 401 404 {"strategy": "all"}
DELETE /api/queues/quorum/replicas/on/n/shrink 401 401 401 401 200
POST /api/queues/quorum/here/q/replicas/add 401 401 401 401 400 {"node": "n"}
DELETE /api/queues/quorum/here/q/replicas/delete 401 401 401 401 400 {"node": "n"}
POST /api/stop                            401 401 401 401 204
"""


class Row(NamedTuple):
    """An endpoint, and the status for a user with each of :data:`TAGS`."""

    method: str
    path: str
    statuses: list[int]
    body: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def read(text: str) -> list[Row]:
    lines = [line.split(maxsplit=7) for line in text.splitlines() if line and not line.startswith("#")]
    return [Row(method, path, list(map(int, rest[:5])), "".join(rest[5:])) for method, path, *rest in lines]


TABLE = read(Path(__file__).with_name("who_may.txt").read_text())
OUR_TABLE = read(OURS)


class World(NamedTuple):
    """A broker with a user per tag, and with objects."""

    broker: BrokerProcess
    operator: Operator
    names: dict[str, str]
    numbers: Iterator[int]

    def statuses(self, row: Row) -> list[int]:
        return [self._status(row, user) for user in TAGS]

    def serves(self, row: Row) -> bool:
        if not isinstance(self.broker, JumpMQ):
            return True
        described = self.operator.see("openapi.json")["paths"]
        return any(row.method.lower() in verbs and is_at(row, path) for path, verbs in described.items())

    def _status(self, row: Row, user: str) -> int:
        path, body = row.path, row.body
        for name, value in {**self.names, "n": str(next(self.numbers)), "me": user}.items():
            path, body = path.replace(f"{{{name}}}", value), body.replace(f"{{{name}}}", value)
        url = f"http://{HOST}:{self.broker.http_port}{path}"
        headers = {"Content-Type": "application/json"}
        return requests.request(
            row.method, url, data=body, headers=headers, auth=(user, PASSWORD), timeout=30
        ).status_code


def is_at(row: Row, template: str) -> bool:
    """Return true if the row's path, without its query, matches a path of the OpenAPI document."""
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), row.path.partition("?")[0]) is not None


@pytest.fixture(scope="module")
def world(broker: BrokerProcess) -> Iterator[World]:
    operator = Operator(broker)
    with closing(login(broker.port)) as connection:
        connection.channel()
        until(lambda: bool(channels_of_guest(operator)))
        name = channels_of_guest(operator)[0]["connection_details"]["name"]
        names = {"node": operator.node, "connection": quote(name, safe="")}
        furnish(operator)
        yield World(broker, operator, names, itertools.count(1))
    clear(operator)


def channels_of_guest(operator: Operator) -> list[dict[str, Any]]:
    """RabbitMQ shows a channel before its connection, which is then an empty list."""
    return [one for one in operator.see("channels") if one.get("user") == "guest" and one["connection_details"]]


def furnish(operator: Operator) -> None:
    def put(*parts: str, **body: object) -> None:
        response = operator.ask("PUT", *parts, json=body)
        assert response.status_code < 300, response.text

    for vhost in ("here", "there"):
        put("vhosts", vhost)
    for user in (*TAGS, "ghost"):
        put("users", user, password=PASSWORD, tags="" if user == "untagged" else user)
    for user in (*TAGS, "guest"):
        put("permissions", "here", user, configure=".*", write=".*", read=".*")
    put("queues", "here", "q")
    put("exchanges", "here", "x", type="direct")
    put("exchanges", "here", "y", type="direct")
    put("exchanges", "here", "h", type="x-consistent-hash")
    for kind in ("policies", "operator-policies"):
        put(kind, "here", "p", pattern="^none$", definition={"max-length": 5})
    for destination in (("q", "q"), ("e", "y")):
        operator.ask("POST", "bindings", "here", "e", "x", *destination, json={"routing_key": "k"})


def clear(operator: Operator) -> None:
    for vhost in ("here", "there"):
        operator.ask("DELETE", "vhosts", vhost)
    for user in (*TAGS, "ghost"):
        operator.ask("DELETE", "users", user)
    for kind, mark in (("vhosts", "made-"), ("users", "made-"), ("global-parameters", "made-")):
        for one in operator.see(kind):
            if one["name"].startswith(mark):
                operator.ask("DELETE", kind, one["name"])


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_every_endpoint_against_every_tag(world: World, row: Row) -> None:
    if not world.serves(row):
        pytest.skip("RabbitMQ's alone")
    assert world.statuses(row) == row.statuses


@pytest.fixture(scope="module")
def our_world() -> Iterator[World]:
    """A separate broker of ours: the last row stops it."""
    with JumpMQ() as running:
        operator = Operator(running)
        furnish(operator)
        yield World(running, operator, {"node": operator.node}, itertools.count(1))


@pytest.mark.parametrize("row", OUR_TABLE, ids=str)
def test_our_own_endpoints_against_every_tag(our_world: World, row: Row) -> None:
    assert our_world.statuses(row) == row.statuses


def test_no_endpoint_is_missing_from_the_tables() -> None:
    with JumpMQ() as running:
        described = Operator(running).see("openapi.json")["paths"]
    served = [(verb.upper(), path) for path, verbs in described.items() for verb in verbs]
    rows = TABLE + OUR_TABLE
    assert not [
        f"{verb} {path}" for verb, path in served if not any(row.method == verb and is_at(row, path) for row in rows)
    ]
