"""rabbitmqctl and jumpmqctl have the same output, errors and exit status for the same arguments.

A test runs rabbitmqctl on RabbitMQ and jumpmqctl on JumpMQ.
"""

import re
import subprocess
from collections.abc import Callable

import pytest
from tests.cli.commands import run

from jumpmq.testing import BrokerProcess, RabbitMQ

Control = Callable[..., tuple[int, str, str]]


LOGGED = re.compile(r"^\n?[0-9:.]+ \[warning\] .*\n", re.MULTILINE)
"""Warning of a slowly starting RabbitMQ on its terminal, which is also the verb's."""


@pytest.fixture
def control(broker: BrokerProcess) -> Control:
    """Exit status, standard output and standard error of a verb, with `--quiet`."""

    def rabbitmqctl(*arguments: str) -> tuple[int, str, str]:
        assert isinstance(broker, RabbitMQ)
        try:
            return 0, broker.ctl(*arguments), ""
        except subprocess.CalledProcessError as error:
            return error.returncode, error.stdout, LOGGED.sub("", error.stderr)

    def jumpmqctl(*arguments: str) -> tuple[int, str, str]:
        result = run("jumpmqctl", "-q", *arguments, JUMPMQ_URL=f"http://guest:guest@127.0.0.1:{broker.http_port}")
        return result.returncode, result.stdout, result.stderr

    return rabbitmqctl if isinstance(broker, RabbitMQ) else jumpmqctl


@pytest.fixture
def before_4_0(broker: BrokerProcess) -> bool:
    """Return true for the verbs of a RabbitMQ before 4.0.

    They fail without any user, have other texts for missing objects, or no JSON.
    """
    return isinstance(broker, RabbitMQ) and broker.version < (4, 0)


def test_policies(control: Control) -> None:
    sharding = '{"shards-per-node": 2, "routing-key": "1234"}'
    assert control("set_policy", "images-shard", "^shard.images$", sharding) == (0, "", "")
    assert control("list_policies") == (
        0,
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        '/\timages-shard\t^shard.images$\tall\t{"routing-key":"1234","shards-per-node":2}\t0\n',
        "",
    )
    wrong = control("set_policy", "images-shard", "^shard.images$", '{"shards-per-node": "two"}')
    assert wrong == (
        69,
        "",
        'Error:\nValidation failed\n\nshards-per-node should be a number, actually was <<"two">>\n\n',
    )
    assert control("clear_policy", "images-shard") == (0, "", "")
    assert control("clear_policy", "images-shard") == (69, "", "Error:\nParameter does not exist\n")


def test_priority_and_kind_of_a_policy(control: Control) -> None:
    ttl = ("set_policy", "--priority", "3", "--apply-to", "queues", "short", "^tmp", '{"message-ttl": 1000}')
    assert control(*ttl) == (0, "", "")
    assert control("list_policies", "--no-table-headers") == (
        0,
        '/\tshort\t^tmp\tqueues\t{"message-ttl":1000}\t3\n',
        "",
    )
    assert control("clear_policy", "short") == (0, "", "")


def test_users(control: Control, before_4_0: bool, unique: Callable[[str], str]) -> None:
    user = unique("anna")
    no_user = (67, "", f'Error:\nUser "{user}" does not exist\n')
    assert control("add_user", user, "secret")[0] == 0
    assert control("add_user", user, "secret") == (70, "", f'Error:\nUser "{user}" already exists\n')
    assert control("set_user_tags", user, "monitoring", "management") == (0, "", "")
    assert f"{user}\t[monitoring, management]\n" in control("list_users")[1]
    assert control("change_password", user, "more secret") == (0, "", "")
    assert control("delete_user", user) == (0, "", "")
    assert control("delete_user", user) == (no_user if before_4_0 else (0, "", ""))
    assert control("change_password", user, "x") == no_user
    assert control("set_user_tags", user, "management") == no_user


def test_permissions(control: Control, before_4_0: bool, unique: Callable[[str], str]) -> None:
    user = unique("bert")
    assert control("add_user", user, "secret")[0] == 0
    assert control("set_permissions", user, "^b", ".*", "") == (0, "", "")
    assert control("list_user_permissions", user) == (0, "vhost\tconfigure\twrite\tread\n/\t^b\t.*\t\n", "")
    assert f"{user}\t^b\t.*\t\n" in control("list_permissions")[1]
    assert control("clear_permissions", user) == (0, "", "")
    missing = "Error:\nVirtual host nowhere does not exist\n"
    assert control("set_permissions", "-p", "nowhere", user, "", "", "") == (69, "", missing)
    assert control("delete_user", user) == (0, "", "")
    no_user = (67, "", f"Error:\nUser {user} does not exist\n")
    assert control("set_permissions", user, "", "", "") == no_user
    assert control("clear_permissions", user) == (no_user if before_4_0 else (0, "", ""))


def test_topic_permissions(control: Control, before_4_0: bool, unique: Callable[[str], str]) -> None:
    user = unique("carl")
    no_user = (67, "", f"Error:\nUser {user} does not exist\n")
    assert control("add_user", user, "secret")[0] == 0
    assert control("set_topic_permissions", user, "amq.topic", "^{username}", "^r") == (0, "", "")
    listed = control("list_topic_permissions")
    assert listed == (0, f"user\texchange\twrite\tread\n{user}\tamq.topic\t^{{username}}\t^r\n", "")
    assert "/\tamq.topic\t^{username}\t^r\n" in control("list_user_topic_permissions", user)[1]
    for exchange in (["amq.topic"], [], []):
        assert control("clear_topic_permissions", user, *exchange) == (0, "", "")
    assert control("list_topic_permissions")[1].strip() == ""
    missing = "Error:\nVirtual host nowhere does not exist\n"
    assert control("set_topic_permissions", "-p", "nowhere", user, "x", "", "") == (69, "", missing)
    assert control("delete_user", user) == (0, "", "")
    assert control("set_topic_permissions", user, "x", "", "") == no_user
    assert control("clear_topic_permissions", user) == (no_user if before_4_0 else (0, "", ""))
    assert control("list_user_topic_permissions", user) == (69, "", f'Error:\n{{:no_such_user, "{user}"}}\n')


def test_limits_of_users(control: Control, unique: Callable[[str], str]) -> None:
    user = unique("dora")
    nobody = (69, "", f'Error:\n{{:no_such_user, "{user}"}}\n')
    assert control("add_user", user, "secret")[0] == 0
    assert control("set_user_limits", user, '{"max-channels": 5}') == (0, "", "")
    assert control("set_user_limits", user, '{"max-connections": 7}') == (0, "", "")
    both = '{"max-channels":5,"max-connections":7}'
    assert control("list_user_limits", "--user", user) == (0, f"{both}\n", "")
    assert control("list_user_limits", "--global") == (0, f"user\tlimits\n{user}\t{both}\n", "")
    wrong = 'Error:\nUnrecognised terms [{<<"max-odd">>,5}] in user-limits\n'
    assert control("set_user_limits", user, '{"max-odd": 5}') == (69, "", wrong)
    assert control("clear_user_limits", user, "max-channels") == (0, "", "")
    assert control("list_user_limits", "--user", user) == (0, '{"max-connections":7}\n', "")
    assert control("clear_user_limits", user, "all") == (0, "", "")
    assert control("list_user_limits", "--user", user) == (0, "{}\n", "")
    assert control("delete_user", user) == (0, "", "")
    for verb in (("set_user_limits", user, '{"max-channels": 5}'), ("clear_user_limits", user, "all")):
        assert control(*verb) == nobody
    assert control("list_user_limits", "--user", user) == nobody


def test_limits_of_virtual_hosts(control: Control, unique: Callable[[str], str]) -> None:
    vhost = unique("limited")
    assert control("add_vhost", vhost) == (0, "", "")
    here = ("-p", vhost)
    assert control("set_vhost_limits", *here, '{"max-queues": 5, "max-connections": 7}') == (0, "", "")
    assert control("list_vhost_limits", *here) == (0, '{"max-connections":7,"max-queues":5}\n', "")
    assert control("set_vhost_limits", *here, '{"max-queues": 6}') == (0, "", "")
    assert control("list_vhost_limits", "--global") == (0, f'vhost\tlimits\n{vhost}\t{{"max-queues":6}}\n', "")
    wrong = 'Error:\nValidation failed\n\nUnrecognised terms [{<<"max-odd">>,5}] in limits\n\n'
    assert control("set_vhost_limits", *here, '{"max-odd": 5}') == (69, "", wrong)
    assert control("clear_vhost_limits", *here) == (0, "", "")
    assert control("list_vhost_limits", *here) == (0, "\n", "")
    assert control("delete_vhost", vhost) == (0, "", "")
    assert control("set_vhost_limits", *here, '{"max-queues": 5}')[0] == 65


def test_virtual_hosts(control: Control, unique: Callable[[str], str]) -> None:
    vhost = unique("blue/green")
    missing = (65, "", f"Virtual host '{vhost}' does not exist\n")
    assert control("add_vhost", vhost) == (0, "", "")
    assert control("add_vhost", vhost) == (0, "", "")
    assert f"{vhost}\tfalse\n" in control("list_vhosts", "name", "tracing")[1]
    assert control("delete_vhost", vhost) == (0, "", "")
    assert control("delete_vhost", vhost) == missing
    assert control("list_policies", "-p", vhost) == missing
    assert control("list_permissions", "-p", vhost) == missing
    assert control("set_policy", "-p", vhost, "name", "pattern", '{"message-ttl": 1}') == missing


def test_queues_that_are_not_there(control: Control, before_4_0: bool) -> None:
    absent = (65, "", "Object (queue, stream, exchange, etc) was not found\n")
    assert control("purge_queue", "nothing") == ((69, "", "Error:\nnot_found\n") if before_4_0 else absent)
    assert control("delete_queue", "nothing") == (64, "", "Error:\nQueue not found\n")


def test_too_few_arguments(control: Control) -> None:
    assert [control(*words)[0] for words in (("add_user",), ("set_policy", "name", "x"), ("purge_queue",))] == [64] * 3


def test_passwords(control: Control, unique: Callable[[str], str]) -> None:
    user = unique("emma")
    assert control("add_user", user, "secret")[0] == 0
    wrong = f"Error:\nError: failed to authenticate user \"{user}\"\nuser '{user}' - invalid credentials\n"
    assert control("authenticate_user", user, "secret") == (0, "Success\n", "")
    assert control("authenticate_user", user, "other") == (65, "", wrong)
    assert control("clear_password", user) == (0, "", "")
    assert control("authenticate_user", user, "secret") == (65, "", wrong)
    assert control("delete_user", user) == (0, "", "")
    assert control("clear_password", user) == (69, "", f'Error:\n{{:no_such_user, "{user}"}}\n')


def test_global_parameters(control: Control, before_4_0: bool) -> None:
    assert control("set_global_parameter", "mine", '{"a":[1,"x"]}') == (0, "", "")
    assert 'mine\t{"a":[1,"x"]}\n' in control("list_global_parameters")[1]
    assert control("clear_global_parameter", "mine") == (0, "", "")
    missing = (69, "", "Error:\nParameter does not exist\n")
    assert control("clear_global_parameter", "mine") == missing
    status, _, reason = control("set_global_parameter", "mine", "{")
    no_json = "JSON decoding error. Reason: " if before_4_0 else "Could not parse JSON document: "
    assert (status, reason.startswith(f"Error:\n{no_json}")) == (69, True)
    assert control("set_cluster_name", "blue") == (0, "", "")
    assert 'cluster_name\t"blue"\n' in control("list_global_parameters")[1]
    assert control("clear_global_parameter", "cluster_name") == (0, "", "")


def test_parameters(control: Control) -> None:
    assert control("list_parameters")[1].strip() == ""
    assert control("set_parameter", "nothing", "x", "{}") == (
        69,
        "",
        "Error:\nValidation failed\n\ncomponent nothing not found\n\n",
    )
    assert control("set_parameter", "vhost-limits", "limits", '{"max-queues":5000}') == (0, "", "")
    listed = 'component\tname\tvalue\nvhost-limits\tlimits\t{"max-queues":5000}\n'
    assert control("list_parameters") == (0, listed, "")
    assert control("clear_parameter", "vhost-limits", "limits") == (0, "", "")
    missing = (69, "", "Error:\nParameter does not exist\n")
    assert control("clear_parameter", "vhost-limits", "limits") == missing
