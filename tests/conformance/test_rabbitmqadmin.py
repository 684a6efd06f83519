"""RabbitMQ's unmodified ``rabbitmqadmin`` prints the same on both brokers, in a tour through its commands.

The tour is a transcript, ``rabbitmqadmin.txt``: a line that begins with ``$`` is a command, followed by its output.
"""

import difflib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumpmq.testing import HOST, BrokerProcess, JumpMQ, RabbitMQ

TOUR = Path(__file__).with_name("rabbitmqadmin.txt").read_text()
INSTALLED = sorted(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"))

pytestmark = pytest.mark.skipif(
    not INSTALLED, reason="RabbitMQ's rabbitmqadmin is not installed (apt-get install rabbitmq-server)"
)


@pytest.fixture(scope="module", params=[RabbitMQ, JumpMQ], ids=["rabbitmq", "jumpmq"])
def fresh(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """A broker without declarations of other tests."""
    if request.param is RabbitMQ and not RabbitMQ.available():
        pytest.skip(RabbitMQ.available().reason)
    with request.param() as running:
        yield running


def admin(broker: BrokerProcess, directory: Path, *arguments: str) -> str:
    """The script's output on stdout and stderr."""
    command = [sys.executable, str(INSTALLED[-1]), "-H", HOST, "-P", str(broker.http_port), *arguments]
    finished = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
    )
    return finished.stdout


@pytest.mark.slow
def test_the_tour_prints_the_same(fresh: BrokerProcess, tmp_path: Path) -> None:
    printed = []
    for line in TOUR.splitlines():
        if line.startswith("$ "):
            output = admin(fresh, tmp_path, *shlex.split(line)[2:])
            printed += [line, *output.rstrip().splitlines()]
    assert not list(difflib.unified_diff(TOUR.splitlines(), printed, "transcript", fresh.name, lineterm=""))


def test_exported_definitions_say_the_same(fresh: BrokerProcess, tmp_path: Path) -> None:
    for command in (
        "declare exchange name=e type=headers durable=false",
        'declare queue name=q arguments={"x-max-length":3}',
        'declare binding source=e destination=q arguments={"x-match":"any","n":1}',
        'declare policy name=p pattern=^q definition={"expires":60000} priority=2 apply-to=queues',
        "export definitions.json",
    ):
        admin(fresh, tmp_path, *command.split(" "))
    found = json.loads((tmp_path / "definitions.json").read_text())
    columns = (
        "vhosts",
        "permissions",
        "topic_permissions",
        "parameters",
        "policies",
        "queues",
        "exchanges",
        "bindings",
    )
    place = {"vhost": "/"}
    assert {name: found[name] for name in columns} == {
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", **place, "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [],
        "parameters": [],
        "policies": [
            {
                **place,
                "name": "p",
                "pattern": "^q",
                "apply-to": "queues",
                "definition": {"expires": 60000},
                "priority": 2,
            }
        ],
        "queues": [{**place, "name": "q", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 3}}],
        "exchanges": [
            {
                **place,
                "name": "e",
                "type": "headers",
                "durable": False,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
        ],
        "bindings": [
            {
                **place,
                "source": "e",
                "destination": "q",
                "destination_type": "queue",
                "routing_key": "",
                "arguments": {"x-match": "any", "n": 1},
            }
        ],
    }
    assert [(user["name"], user["tags"]) for user in found["users"]] == [("guest", ["administrator"])]
