"""The beginning of scripts for RabbitMQ: enabling plugins, under RabbitMQ's names of the tools."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.cli.commands import run

NOWHERE = "http://guest:guest@127.0.0.1:9"


def ctl(*words: str) -> tuple[int, str, str]:
    """Status and output of `jumpmqctl`, without a broker."""
    result = run("jumpmqctl", *words, JUMPMQ_URL=NOWHERE)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("option", [[], ["--offline"], ["--online"]])
def test_what_is_always_there_is_enabled(option: list[str]) -> None:
    status, output, errors = ctl("enable", *option, "rabbitmq_consistent_hash_exchange", "rabbitmq_sharding")
    assert (status, errors) == (0, "")
    assert output == "rabbitmq_consistent_hash_exchange is always enabled\nrabbitmq_sharding is always enabled\n"
    assert ctl("is_enabled", "rabbitmq_management")[0] == 0
    assert ctl("set", "rabbitmq_sharding")[0] == 0


def test_what_is_not_there_is_named_with_what_is() -> None:
    status, output, errors = ctl("enable", "rabbitmq_management", "rabbitmq_federation", "rabbitmq_manegement")
    assert (status, output) == (64, "")
    assert "JumpMQ has no rabbitmq_federation: `jumpmq migrate --follow`" in errors
    assert "did you mean rabbitmq_management?" in errors
    assert ctl("is_enabled", "rabbitmq_mqtt")[0] == 69
    assert ctl("enable")[0] == 64


def test_a_plugin_that_does_more_is_told_of() -> None:
    status, _, errors = ctl("enable", "rabbitmq_stream")
    assert status == 0
    assert "port 5552" in errors
    status, _, errors = ctl("enable", "rabbitmq_shovel", "rabbitmq_shovel_management")
    assert status == 0
    assert "`jumpmq migrate --follow`" in errors


def test_plugins_are_listed() -> None:
    status, output, _ = ctl("list", "-m", "-E", "hash")
    assert (status, output) == (0, "rabbitmq_consistent_hash_exchange\n")
    assert "rabbitmq_sharding\t" in ctl("list", "sharding")[1]


def test_scripts_find_the_tools_by_rabbitmqs_names(tmp_path: Path) -> None:
    names = tmp_path / "bin"
    installed = run("jumpmq", "install-names", names).stdout.split()
    assert {Path(path).name for path in installed} >= {"rabbitmqctl", "rabbitmq-plugins", "rabbitmq-diagnostics"}
    script = "rabbitmq-plugins enable --offline rabbitmq_sharding && rabbitmqctl version"
    environment = os.environ | {"PATH": f"{names}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, "")
    assert run("jumpmq", "install-names", names).returncode == 0, "again"


def test_a_program_of_another_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "rabbitmqctl").write_text("#!/bin/sh\n")
    result = run("jumpmq", "install-names", tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith(
        f"jumpmq: cannot install names in {tmp_path}: {tmp_path}/rabbitmqctl already exists"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rabbitmqctl"]
