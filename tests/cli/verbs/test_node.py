"""`ping`, `status` and `stop`."""

import json
from pathlib import Path

from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run, serving
from tests.cli.verbs.control import Failure, Output

import jumpmq


def test_ping(output: Output) -> None:
    assert output("-q", "ping") == "Ping succeeded\n"
    assert json.loads(output("ping", "--formatter", "json")) == {"message": "Ping succeeded"}


def test_status(output: Output, channel: BlockingChannel) -> None:
    lines = output("status").splitlines()
    assert lines[0] == "Status of node jumpmq@sparrow ..."
    assert {"Node name: jumpmq@sparrow", "Connection count: 1", "Virtual host count: 1", "(none)"} <= set(lines)
    assert not [line for line in lines if "None" in line]


def test_status_as_json(output: Output, running: jumpmq.RunningBroker) -> None:
    status = json.loads(output("status", "--formatter", "json"))
    assert status["node"] == "jumpmq@sparrow"
    assert {one["port"] for one in status["listeners"]} == {running.port, running.http_port}
    assert status["memory"]["total"]["rss"] > 10**7


def test_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        assert run("jumpmqctl", "-q", "stop", "--url", broker.http_url).returncode == 0
        assert broker.process.wait(60) == 0
        assert run("jumpmqctl", "stop", "--url", broker.http_url).returncode == 69
        assert run("jumpmqctl", "stop", "--idempotent", "--url", broker.http_url).returncode == 0


def test_a_broker_inside_a_program_is_not_stopped(failure: Failure) -> None:
    assert failure("stop") == (69, "Error:\nthis broker runs inside another program: stop that program\n")


def test_only_administrators_stop_a_broker(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        for words in (["add_user", "anna", "secret"], ["set_user_tags", "anna", "monitoring"]):
            assert run("jumpmqctl", *words, "--url", broker.http_url).returncode == 0
        url = broker.http_url.replace("guest:guest", "anna:secret")
        assert run("jumpmqctl", "stop", "--url", url).returncode == 77
        assert run("jumpmqctl", "ping", "--url", url).returncode == 0
