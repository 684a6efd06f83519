"""Health checks; every verb of RabbitMQ's tools is implemented or explained."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from tests.cli.commands import run
from tests.cli.verbs.control import Failure, Output
from tests.http.api import API
from tests.waiting import until

import jumpmq
from jumpmq.cli.absent import REASONS
from jumpmq.cli.grouped import GroupedVerbs
from jumpmq.testing import JumpMQ

RABBITMQS = (Path(__file__).parent.parent / "rabbitmq_verbs.txt").read_text().split()
"""The verbs of RabbitMQ 4.0.5's tools, as listed by `help`."""

DOCS = Path(__file__).parents[3] / "docs" / "command-line.md"


def url_of(broker: JumpMQ) -> str:
    return f"http://guest:guest@127.0.0.1:{broker.http_port}"


def test_a_healthy_node(output: Output, running: jumpmq.RunningBroker) -> None:
    node = "jumpmq@sparrow"
    assert output("-q", "alarms") == f"Node {node} reported no alarms, local or clusterwide\n"
    assert output("-q", "check_alarms") == f"Node {node} reported no alarms, local or clusterwide\n"
    assert output("-q", "check_local_alarms") == f"Node {node} reported no local alarms\n"
    assert output("-q", "check_running") == output("-q", "is_running")
    assert output("-q", "check_virtual_hosts") == f"Node {node} reported all vhosts as running\n"
    assert output("-q", "check_certificate_expiration") == "No certificates are expiring within 4 weeks.\n"
    assert f"port: {running.port}, protocol: amqp" in output("-q", "listeners")
    assert output("-q", "check_port_listener", str(running.port)).endswith(f"is running on node {node}.\n")
    assert output("-q", "check_protocol_listener", "amqp").endswith(f"is running on node {node}.\n")
    assert "Successfully connected to ports" in output("-q", "check_port_connectivity")
    assert output("-q", "server_version") == output("version")


def test_what_is_not_well_is_an_exit_status(failure: Failure, running: jumpmq.RunningBroker) -> None:
    status, said = failure("check_port_listener", "1")
    assert (status, "No listener for port 1 is active" in said) == (69, True)
    status, said = failure("check_protocol_listener", "mqtt")
    assert (status, said.endswith("following protocols: amqp, http\n")) == (69, True)
    with JumpMQ(arguments=["--disk-free-limit", "1000TB"]) as full:
        until(lambda: run("jumpmqctl", "check_alarms", JUMPMQ_URL=url_of(full)).returncode == 69)
        told = run("jumpmqctl", "check_local_alarms", JUMPMQ_URL=url_of(full))
        assert (told.returncode, told.stderr) == (69, "Error:\ndisk space alarm on node jumpmq@localhost\n")
        assert "disk space alarm on node" in run("jumpmqctl", "alarms", JUMPMQ_URL=url_of(full)).stdout


def test_a_hash_of_a_password_logs_its_user_in(output: Output, running: jumpmq.RunningBroker) -> None:
    kept = output("hash_password", "secret").strip()
    octets = base64.b64decode(kept)
    assert octets[4:] == hashlib.sha256(octets[:4] + b"secret").digest()
    body = {"password_hash": kept, "tags": "monitoring"}
    assert API(running.http_url).request("PUT", "users", "hashed", json=body).status_code == 201
    assert output("-q", "authenticate_user", "hashed", "secret") == "Success\n"


def test_permissions_in_all_virtual_hosts(output: Output, failure: Failure) -> None:
    output("add_vhost", "east")
    output("add_user", "ann", "secret")
    output("set_permissions_globally", "ann", "^a", "^b", "^c")
    listed = output("-s", "list_user_permissions", "ann").splitlines()
    assert sorted(listed) == ["/\t^a\t^b\t^c", "east\t^a\t^b\t^c"]
    assert failure("set_permissions_globally", "nobody", "", "", "")[0] == 67


def test_metadata_of_a_virtual_host(output: Output, failure: Failure, running: jumpmq.RunningBroker) -> None:
    output("add_vhost", "west", "--description", "before", "--tags", "a", "--home", "2")
    assert API(running.http_url).get("vhosts", "west")["home"] == 2
    listed = output("list_vhosts", "name", "home", "--no-table-headers", "--quiet").splitlines()
    assert {"/\t0", "west\t2"} <= set(listed)
    output("update_vhost_metadata", "west", "--home", "0")
    output("update_vhost_metadata", "west", "--description", "after", "--default-queue-type", "quorum")
    found = API(running.http_url).get("vhosts", "west")
    assert "home" not in found
    assert (found["description"], found["tags"], found["default_queue_type"]) == ("after", ["a"], "quorum")
    assert failure("update_vhost_metadata", "lost", "--tags", "a") == (65, "Virtual host 'lost' does not exist\n")
    assert failure("update_vhost_metadata", "west")[0] == 64
    assert failure("add_vhost", "east", "--home", "-1")[0] == 64


def test_waiting_for_nodes_and_shutting_down(output: Output, failure: Failure) -> None:
    output("await_online_nodes", "1")
    with JumpMQ() as other:
        assert run("jumpmqctl", "shutdown", JUMPMQ_URL=url_of(other)).returncode == 0
        assert run("jumpmqctl", "ping", JUMPMQ_URL=url_of(other)).returncode == 69


@pytest.mark.parametrize("verb", ["eval", "disable", "delete_member", "log_tail"])
def test_a_verb_that_is_not_there_is_answered_with_a_sentence(failure: Failure, verb: str) -> None:
    said = f"Error (argument validation): jumpmqctl has no '{verb}': {REASONS[verb]}.\n"
    assert failure(verb, "anything") == (64, said)


def test_every_verb_of_rabbitmqs_tools_is_there_or_answered_as_documented() -> None:
    documented = dict(re.findall(r"^\| `([a-z_]+)` \| [a-z, ]+ \| (yes|no: .*) \|$", DOCS.read_text(), re.MULTILINE))
    expected = {verb: "yes" if verb in GroupedVerbs.titles else f"no: {REASONS[verb]}" for verb in RABBITMQS}
    assert documented == expected
    assert not REASONS.keys() - set(RABBITMQS)
