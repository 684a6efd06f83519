"""`jumpmqctl` has the listings, texts and exit statuses of rabbitmqctl."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator

import pika
import pytest
from tests.cli.commands import command, run

import jumpmq

Listed = Callable[..., list[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[jumpmq.RunningBroker]:
    """A broker with an exchange `e` that hashes a header, bound to q1 (a message, bounded length) and q2."""
    with jumpmq.running() as running:
        connection = pika.BlockingConnection(pika.URLParameters(running.amqp_url))
        channel = connection.channel()
        channel.exchange_declare("e", "x-consistent-hash", durable=True, arguments={"hash-header": "h"})
        channel.queue_declare("q1", durable=True, arguments={"x-max-length": 5})
        channel.queue_declare("q2", durable=True)
        channel.queue_bind("q1", "e", "1")
        channel.queue_bind("q2", "e", "2")
        channel.confirm_delivery()
        channel.basic_publish("", "q1", b"x")
        yield running
        connection.close()


@pytest.fixture
def listed(broker: jumpmq.RunningBroker) -> Listed:
    """Run jumpmqctl against the broker. Return the lines of its standard output."""

    def run_listing(*arguments: str) -> list[str]:
        result = run("jumpmqctl", *arguments, "--url", broker.http_url)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout.splitlines()

    return run_listing


def test_queues_and_their_messages_by_default(listed: Listed) -> None:
    assert listed("list_queues") == ["Listing queues for vhost / ...", "name\tmessages", "q1\t1", "q2\t0"]


def test_queues_with_columns(listed: Listed) -> None:
    columns = "name durable auto_delete arguments messages_ready messages_unacknowledged consumers type state"
    assert listed("list_queues", "-q", *columns.split()) == [
        columns.replace(" ", "\t"),
        'q1\ttrue\tfalse\t[{"x-max-length",5}]\t1\t0\t0\tclassic\trunning',
        "q2\ttrue\tfalse\t[]\t0\t0\t0\tclassic\trunning",
    ]


def test_columns_may_be_separated_by_commas(listed: Listed) -> None:
    assert listed("list_queues", "-s", "name,messages") == ["q1\t1", "q2\t0"]


def test_no_table_headers(listed: Listed) -> None:
    assert listed("list_queues", "--no-table-headers", "name") == ["Listing queues for vhost / ...", "q1", "q2"]


def test_every_column_of_rabbitmqctl_is_accepted(listed: Listed) -> None:
    columns = """arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable
        exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader members memory
        message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready message_bytes_unacknowledged
        messages messages_persistent messages_ram messages_ready messages_ready_ram messages_unacknowledged
        messages_unacknowledged_ram name online owner_pid pid policy slave_pids state synchronised_slave_pids type"""
    lines = listed("list_queues", "-q", *columns.split())
    assert [len(line.split("\t")) for line in lines] == [36, 36, 36]


def test_exchanges(listed: Listed) -> None:
    lines = listed("list_exchanges")
    assert lines[:2] == ["Listing exchanges for vhost / ...", "name\ttype"]
    assert {"\tdirect", "amq.direct\tdirect", "amq.topic\ttopic", "e\tx-consistent-hash"} <= set(lines)
    assert 'e\ttrue\t[{"hash-header","h"}]' in listed("list_exchanges", "name", "durable", "arguments")


def test_bindings(listed: Listed) -> None:
    lines = listed("list_bindings", "-q")
    assert lines[0] == "source_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments"
    assert sorted(lines[1:]) == [
        "\texchange\tq1\tqueue\tq1\t[]",
        "\texchange\tq2\tqueue\tq2\t[]",
        "e\texchange\tq1\tqueue\t1\t[]",
        "e\texchange\tq2\tqueue\t2\t[]",
    ]


def test_json_is_only_json(listed: Listed) -> None:
    assert json.loads("\n".join(listed("list_queues", "--formatter", "json", "name", "arguments"))) == [
        {"name": "q1", "arguments": {"x-max-length": 5}},
        {"name": "q2", "arguments": {}},
    ]


def test_on_a_terminal_the_table_is_drawn_and_fits(broker: jumpmq.RunningBroker) -> None:
    terminal, its_end = pty.openpty()
    line = command("jumpmqctl", "list_queues", "name", "arguments", "--url", broker.http_url)
    subprocess.run(line, stdout=its_end, timeout=200, check=True, env=os.environ | {"COLUMNS": "30", "TERM": "xterm"})
    os.close(its_end)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(terminal, 10_000).decode())
    os.close(terminal)
    assert "─" in shown
    assert all(len(row) <= 30 for row in shown.splitlines()[1:])


def test_the_url_comes_from_the_environment_too(broker: jumpmq.RunningBroker) -> None:
    assert run("jumpmqctl", "list_queues", "-s", "name", JUMPMQ_URL=broker.http_url).stdout == "q1\nq2\n"


def fails(status: int, *arguments: str) -> str:
    """Run jumpmqctl, which must fail with the status. Return the last line of stderr."""
    result = run("jumpmqctl", *arguments)
    assert result.returncode == status
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def test_an_unknown_column() -> None:
    said = fails(os.EX_USAGE, "list_queues", "bogus", "name")
    assert said == "Error (argument validation): Info key(s) bogus are not supported"


def test_an_unknown_verb_option_or_formatter() -> None:
    assert "list_nothing" in fails(os.EX_USAGE, "list_nothing")
    assert "--nonsense" in fails(os.EX_USAGE, "list_queues", "--nonsense")
    assert "--formatter" in fails(os.EX_USAGE, "list_queues", "--formatter", "xml")


def test_an_unknown_virtual_host(broker: jumpmq.RunningBroker) -> None:
    said = fails(os.EX_DATAERR, "list_queues", "-p", "a/b", "--url", broker.http_url)
    assert said == "Virtual host 'a/b' does not exist"


def test_a_wrong_password(broker: jumpmq.RunningBroker) -> None:
    said = fails(os.EX_NOPERM, "list_queues", "--url", f"http://guest:wrong@127.0.0.1:{broker.http_port}")
    assert "refuses user 'guest'" in said


def test_no_broker_there() -> None:
    assert "Connection refused" in fails(os.EX_UNAVAILABLE, "list_queues", "--url", "http://127.0.0.1:1")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:15672", "http://127.0.0.1:port", "http://"])
def test_a_url_that_is_none(url: str) -> None:
    assert url in fails(os.EX_USAGE, "list_queues", "--url", url)
