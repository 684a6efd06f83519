"""Maintenance of a node: help, waiting, reports, readers."""

import json

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.cli.verbs.control import Failure, Output
from tests.http.api import API

import jumpmq
from jumpmq._version import __version__
from jumpmq.cli.grouped import GroupedVerbs


def test_help_tells_of_every_verb_in_a_line() -> None:
    shown = run("jumpmqctl", "help").stdout
    assert shown == run("jumpmqctl", "--help").stdout
    assert shown == run("jumpmqctl", "--url", "http://127.0.0.1:1", "-q", "help").stdout
    lines = shown.splitlines()
    assert "Policies and parameters:" in lines
    assert "..." not in shown.partition("The broker:")[2]
    for verb in GroupedVerbs.titles:
        assert len([line for line in lines if line.startswith(f"  {verb} ")]) == 1, verb
    assert "--priority" in run("jumpmqctl", "help", "set_policy").stdout
    unknown = run("jumpmqctl", "help", "set_polcy")
    assert (unknown.returncode, "Did you mean 'set_policy'?" in unknown.stderr) == (64, True)


def test_version() -> None:
    assert run("jumpmqctl", "version").stdout == f"{__version__}\n"


def test_the_node_is_the_one_that_is_meant(output: Output, failure: Failure, running: jumpmq.RunningBroker) -> None:
    assert output("-q", "-n", "jumpmq@sparrow", "ping") == "Ping succeeded\n"
    where = f"the broker at http://127.0.0.1:{running.http_port} is node jumpmq@sparrow, not jumpmq@owl"
    assert failure("ping", "--node", "jumpmq@owl") == (69, f"Error:\n{where}\n")


def test_environment(output: Output) -> None:
    assert "heartbeat = 60\n" in output("environment")
    assert json.loads(output("environment", "--formatter", "json"))["heartbeat"] == 60


def test_cluster_status_as_json(output: Output) -> None:
    shown = json.loads(output("cluster_status", "--formatter", "json"))
    assert shown["running_nodes"] == ["jumpmq@sparrow"]


def test_report(output: Output, channel: BlockingChannel) -> None:
    channel.queue_declare("reported")
    shown = output("report")
    for title in ("status", "cluster_status", "environment", "queues: 1", "users: 1"):
        assert f"--- {title} ---" in shown
    assert "reported" in shown
    assert "password_hash\t" not in shown and "default-pass" not in shown


def test_readers(output: Output, failure: Failure, channel: BlockingChannel, running: jumpmq.RunningBroker) -> None:
    channel.queue_declare("read")
    channel.confirm_delivery()
    channel.basic_publish("", "read", b"x")
    channel.basic_publish("", "read", b"xy")
    body = {"queues": {"read": None}, "max_messages": 1}
    API(running.http_url).post("readers", "/", "spark", "reserve", body=body)
    lines = output("-q", "list_readers").splitlines()
    shown = dict(zip(*(line.split("\t") for line in lines), strict=True))
    assert (shown["name"], shown["queue"], shown["reserved"]) == ("spark", "read", "1")
    assert (shown["ready"], shown["ready_octets"]) == ("1", "2")
    assert output("-q", "release_reader", "spark") == ""
    assert output("-q", "list_readers") == ""
    assert failure("release_reader", "spark") == (65, "Error:\nno reader group 'spark' in vhost '/'\n")


@pytest.mark.parametrize("words", [["wait"], ["wait", "file", "--pid", "1"], ["list_queues", "--offline", "--local"]])
def test_what_does_not_go_together(failure: Failure, words: list[str]) -> None:
    assert failure(*words)[0] == 64


def test_who_is_gone_is_not_waited_for(failure: Failure) -> None:
    assert failure("-q", "wait", "--pid", str(2**22 - 1)) == (69, "Error:\nprocess_not_running\n")


def test_tracing(output: Output, failure: Failure) -> None:
    assert output("-q", "trace_on") == "Trace enabled for vhost /\n"
    assert "/\ttrue\n" in output("list_vhosts", "name", "tracing")
    assert output("-q", "trace_off") == "Trace disabled for vhost /\n"
    assert "/\tfalse\n" in output("list_vhosts", "name", "tracing")
    assert failure("trace_on", "-p", "nowhere") == (65, "Virtual host 'nowhere' does not exist\n")


def test_tags_of_a_virtual_host(output: Output) -> None:
    output("add_vhost", "tagged", "--description", "for tests")
    assert output("-q", "set_vhost_tags", "tagged", "a", "b") == ""
    assert "tagged\tfor tests\t[a, b]\n" in output("list_vhosts", "name", "description", "tags")
    output("delete_vhost", "tagged")


def test_connections_of_a_user_are_closed(output: Output, channel: BlockingChannel) -> None:
    assert output("close_all_user_connections", "guest", "bye") == "Closing connections of user guest, reason: bye...\n"
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - bye"):
        channel.connection.process_data_events(60)


def test_listeners(output: Output, running: jumpmq.RunningBroker) -> None:
    assert output("-q", "suspend_listeners") == ""
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(running.amqp_url))
    assert output("-q", "resume_listeners") == ""
    pika.BlockingConnection(pika.URLParameters(running.amqp_url)).close()


def test_the_level_of_the_log(output: Output, failure: Failure) -> None:
    wrong = "Error:\nlevel noise is not supported. Try one of debug, info, warning, error, critical, none\n"
    assert failure("set_log_level", "noise") == (69, wrong)
    assert output("set_log_level", "info") == 'Setting log level to "info" ...\n'


def test_waiting(output: Output, failure: Failure) -> None:
    assert output("await_startup") == ""
    assert output("wait", "--pid", "1").endswith("Node 'jumpmq@sparrow' is running\n")
    assert failure("-q", "wait", "/nonexistent.pid", "--timeout", "0.5")[0] == 75


def test_where_queues_are(output: Output, channel: BlockingChannel) -> None:
    channel.queue_declare("here", exclusive=True)
    listed = [output("-s", "list_queues", place, "name") for place in ("--online", "--local", "--offline")]
    assert [("here\n" in one) for one in listed] == [True, True, False]


def test_a_verb_that_there_is_not(failure: Failure) -> None:
    assert failure("list_quues") == (
        64,
        "Error (argument validation): Command 'list_quues' not found. Did you mean 'list_queues'?\n",
    )


def test_attempts_to_log_in(output: Output) -> None:
    assert "http\t" in output("list_node_auth_attempt_stats")
