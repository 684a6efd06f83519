"""`--load-definitions`: the definitions of the file exist before the first client, and survive restarts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.cli.commands import run, serving

FILE: dict[str, Any] = {
    "rabbit_version": "4.0.5",
    "vhosts": [{"name": "/"}, {"name": "shop", "description": "orders", "tags": ["one"]}],
    "users": [{"name": "reader", "password_hash": "", "tags": ["monitoring"]}],
    "permissions": [{"user": "reader", "vhost": "shop", "configure": "", "write": "", "read": ".*"}],
    "policies": [
        {"vhost": "shop", "name": "short", "pattern": "^q", "apply-to": "queues", "definition": {"max-length": 9}}
    ],
    "queues": [{"vhost": "shop", "name": "q1", "durable": True, "auto_delete": False, "arguments": {}}],
    "exchanges": [{"vhost": "shop", "name": "orders", "type": "x-consistent-hash", "durable": True}],
    "bindings": [{"vhost": "shop", "source": "orders", "destination": "q1", "routing_key": "2"}],
}


def written(directory: Path, found: object, name: str = "definitions.json") -> Path:
    file = directory / name
    file.write_text(json.dumps(found))
    return file


def get(port: int, path: str) -> Any:
    answer = requests.get(f"http://127.0.0.1:{port}/api/{path}", auth=("guest", "guest"), timeout=30)
    answer.raise_for_status()
    return answer.json()


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_definitions_are_there_with_the_first_client_and_the_same_ones_are_left_alone(
    tmp_path: Path, workers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"JUMPMQ_LOAD_DEFINITIONS": str(written(tmp_path, FILE)), "JUMPMQ_WORKERS": workers}
    with serving(tmp_path / "data", stderr=None, **settings) as broker:
        [binding] = get(broker.http_port, "exchanges/shop/orders/bindings/source")
        assert (binding["destination"], binding["routing_key"]) == ("q1", "2")
        assert get(broker.http_port, "policies/shop/short")["definition"] == {"max-length": 9}
        assert get(broker.http_port, "users/reader")["tags"] == ["monitoring"]
        broker.process.terminate()
        broker.process.wait(60)
    assert re.search("jumpmq.audit: (home 1: )?set policy", capfd.readouterr().err)
    with serving(tmp_path / "data", stderr=None, **settings) as broker:
        broker.process.terminate()
        broker.process.wait(60)
    log = capfd.readouterr().err
    assert f"definitions of {tmp_path / 'definitions.json'} are loaded" in log
    assert set(re.findall("jumpmq.audit: (?:home 1: )?(.*?) \\w+=", log)) <= {"add home"}


def test_what_differs_is_replaced_at_the_next_start(tmp_path: Path) -> None:
    file = written(tmp_path, FILE)
    with serving(tmp_path / "data", JUMPMQ_LOAD_DEFINITIONS=str(file)) as broker:
        broker.process.terminate()
        broker.process.wait(60)
    changed = json.loads(json.dumps(FILE))
    changed["policies"][0]["definition"] = {"max-length": 10}
    written(tmp_path, changed)
    with serving(tmp_path / "data", JUMPMQ_LOAD_DEFINITIONS=str(file)) as broker:
        assert get(broker.http_port, "policies/shop/short")["definition"] == {"max-length": 10}


def test_the_files_of_a_directory_are_one_import(tmp_path: Path) -> None:
    directory = tmp_path / "definitions"
    directory.mkdir()
    written(directory, {name: FILE[name] for name in ("queues", "exchanges", "bindings")}, "1.json")
    written(directory, {"rabbit_version": "4.0.5", "vhosts": FILE["vhosts"]}, "2.json")
    with serving(tmp_path / "data", JUMPMQ_LOAD_DEFINITIONS=str(directory)) as broker:
        assert [one["name"] for one in get(broker.http_port, "queues/shop")] == ["q1"]


WRONG = {
    "{": "is not a definitions file",
    "[]": "is not a definitions file",
    json.dumps({**FILE, "queues": [{"vhost": "shop"}]}): "queues[0]",
    json.dumps({**FILE, "bindings": [{**FILE["bindings"][0], "destination": "q9"}]}): "bindings[0]",
    json.dumps({**FILE, "bindings": [{**FILE["bindings"][0], "routing_key": "heavy"}]}): "bindings[0]",
}


def test_a_file_that_is_wrong_ends_the_start_with_one_line_and_changes_nothing(tmp_path: Path) -> None:
    file, data = tmp_path / "definitions.json", tmp_path / "data"

    def refusal() -> str:
        ports = ["--port", "0", "--http-port", "0", "--log-level", "error"]
        result = run("jumpmq", "serve", *ports, "--data-dir", data, "--load-definitions", file)
        assert result.returncode == 1
        assert result.stdout == ""
        [line] = result.stderr.splitlines()
        start = "jumpmq: cannot load definitions from "
        assert line.startswith(start)
        return line.removeprefix(start)

    assert refusal() == f"{file}: No such file or directory"
    for content, reason in WRONG.items():
        file.write_text(content)
        assert reason in refusal()
    with serving(data) as broker:
        assert [one["name"] for one in get(broker.http_port, "vhosts")] == ["/"]
