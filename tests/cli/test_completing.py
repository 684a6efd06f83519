"""Completions of a shell."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from tests.cli.commands import command

import jumpmq
from jumpmq.management import ManagementClient


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with jumpmq.running() as broker:
        api = ManagementClient(broker.http_url)
        for queue in ("orders-1", "orders-2", "stock"):
            api.put("queues", "/", queue, body={})
        yield broker.http_url


def offered(line: str, **environment: str) -> list[str]:
    """The completions of bash for the last word of a line."""
    words = line.split(" ")
    asked = {"_JUMPMQCTL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = subprocess.run(
        command("jumpmqctl"), env=os.environ | asked | environment, capture_output=True, text=True, timeout=100
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_verbs_and_names_from_the_broker_are_offered(url: str) -> None:
    assert "purge_queue" in offered("jumpmqctl purge")
    assert offered("jumpmqctl purge_queue ord", JUMPMQ_URL=url) == ["orders-1", "orders-2"]
    assert offered(f"jumpmqctl purge_queue --url {url} st") == ["stock"]
    assert "amq.topic" in offered("jumpmqctl shards amq.", JUMPMQ_URL=url)
    assert offered("jumpmqctl purge_queue --vhost ", JUMPMQ_URL=url) == ["/"]


def test_nothing_is_offered_where_no_broker_answers() -> None:
    assert offered("jumpmqctl purge_queue o", JUMPMQ_URL="http://guest:guest@127.0.0.1:9") == []
    assert offered("jumpmqctl purge_queue o", JUMPMQ_URL="no url") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    asked = {"_JUMPMQCTL_COMPLETE": f"source_{shell}"}
    result = subprocess.run(command("jumpmqctl"), env=os.environ | asked, capture_output=True, text=True, timeout=100)
    assert f"complete_{shell}" in result.stdout
