"""General options, messages before the operation, and completion."""

import os
import subprocess
from urllib.parse import urlsplit

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import command, run
from tests.cli.verbs.control import Failure, Output

import jumpmq


def test_general_options_stand_before_the_verb_too(output: Output) -> None:
    assert output("-q", "--vhost", "/", "--formatter=csv", "list_permissions") == (
        '"user","configure","write","read"\n"guest",".*",".*",".*"\n'
    )


def test_the_port_of_amqp_is_not_taken_for_the_management_port(failure: Failure, running: jumpmq.RunningBroker) -> None:
    url = f"http://guest:guest@127.0.0.1:{urlsplit(running.amqp_url).port}"
    where = url.replace("guest:guest@", "")
    said = f"Error:\n{where} speaks AMQP: use the management port, by default 15672\n"
    assert failure("--url", url, "-q", "status") == (76, said)


def test_what_is_about_to_happen_is_said_first(output: Output) -> None:
    assert output("set_policy", "ttl", "^q", '{"message-ttl": 1}') == (
        'Setting policy "ttl" for pattern "^q" to "{"message-ttl": 1}" with priority "0" for vhost "/" ...\n'
    )
    assert output("clear_policy", "ttl") == 'Clearing policy "ttl" on vhost "/" ...\n'
    assert output("list_users").startswith("Listing users ...\nuser\ttags\n")


def test_operator_policies(output: Output) -> None:
    output("set_operator_policy", "cap", "^q", '{"max-length": 10}', "--apply-to", "queues")
    assert output("-s", "list_operator_policies") == '/\tcap\t^q\tqueues\t{"max-length":10}\t0\n'
    output("clear_operator_policy", "cap")
    assert output("-s", "list_operator_policies") == ""


def test_queues_are_purged_and_deleted(channel: BlockingChannel, output: Output, failure: Failure) -> None:
    channel.queue_declare("orders")
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"x")
    assert failure("delete_queue", "--if-empty", "orders") == (64, "Error:\nQueue is not empty\n")
    assert output("-q", "purge_queue", "orders") == ""
    assert output("delete_queue", "--if-empty", "orders").splitlines() == [
        "Deleting queue 'orders' on vhost '/' if queue is empty ...",
        "Queue was successfully deleted with 0 ready messages",
    ]


def test_a_password_is_read_from_standard_input(running: jumpmq.RunningBroker, output: Output) -> None:
    result = subprocess.run(
        command("jumpmqctl", "-q", "add_user", "carla"),
        input="secret\n",
        env=os.environ | {"JUMPMQ_URL": running.http_url},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (result.returncode, result.stderr) == (0, "")
    output("set_user_tags", "carla", "management")
    assert output("-q", "ping", "--url", running.http_url.replace("guest:guest", "carla:secret")) == "Ping succeeded\n"


def test_a_definition_that_is_no_json_object(failure: Failure) -> None:
    assert failure("set_policy", "ttl", "^q", "message-ttl")[0] == 69
    assert failure("set_policy", "ttl", "^q", "[1]") == (69, "Error:\nthe definition must be a JSON object, not [1]\n")


def test_names_that_cannot_be(failure: Failure) -> None:
    empty = (64, "Error (argument validation): a name must not be empty\n")
    assert failure("add_user", "", "secret") == empty
    assert failure("set_policy", "", "^q", '{"message-ttl": 1}') == empty
    assert failure("delete_queue", "a/b?c#d%") == (64, "Error:\nQueue not found\n")
    assert "not UTF-8" in failure("-q", "delete_user", os.fsdecode(b"\xff"))[1]


@pytest.mark.parametrize(
    "words",
    [
        {"_JUMPMQCTL_COMPLETE": "complete_bash", "COMP_WORDS": "jumpmqctl set_p", "COMP_CWORD": "1"},
        {"_JUMPMQCTL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "jumpmqctl set_p"},
    ],
    ids=["bash", "zsh"],
)
def test_verbs_are_completed(words: dict[str, str]) -> None:
    completed = run("jumpmqctl", timeout=200, **words).stdout
    assert "set_policy" in completed
    assert "set_permissions" in completed
    assert "set_user_tags" not in completed
