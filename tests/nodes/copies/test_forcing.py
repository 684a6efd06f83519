"""`jumpmq force-leader`, killed at every step: a second call succeeds, and reports the loss again."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import run
from tests.etcd import etcd, needs_etcd
from tests.store.opened import Opened, make_messages

from jumpmq.nodes.etcd.client import Etcd, get, put
from jumpmq.nodes.etcd.keys import Keys
from jumpmq.nodes.joining.joining import Membership
from jumpmq.nodes.joining.member_file import prepare
from jumpmq.nodes.replicas.copy_directory import NOTE, Noted
from jumpmq.replication.configuration import Configuration
from jumpmq.store import losses

pytestmark = needs_etcd

KEYS = Keys("test")
ME = Membership("test", "identity", "last", "disklog-", home=1)
LOST = Configuration(9, ME.member, "last", 3, 2, ("last", "two", "three"), 4, "two.lost", ("two.lost", "three.lost"))

KILLED = """
import asyncio, os, signal, sys
from jumpmq.cli.jumpmq import main
from jumpmq.nodes.copies import restoring
from jumpmq.nodes.replicas import configuration_key, copy_directory
from jumpmq.store import losses

owner, name, when = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
classes = {
    "losses": losses,
    "ConfigurationKey": configuration_key.ConfigurationKey,
    "CopyDirectory": copy_directory.CopyDirectory,
}
owner = classes[owner]
called = getattr(owner, name)

def end():
    os.kill(os.getpid(), signal.SIGKILL)

async def ends(*arguments):
    if when == "after":
        await called(*arguments)
    end()

def ends_at_once(*arguments, **named):
    if when == "after":
        called(*arguments, **named)
    end()

setattr(owner, name, ends if asyncio.iscoroutinefunction(called) else ends_at_once)
main()
"""


async def _put(url: str, values: dict[str, str]) -> None:
    client = Etcd([url])
    try:
        await client.transaction([], [put(key, value) for key, value in values.items()])
    finally:
        await client.close()


async def _configuration(url: str) -> Configuration:
    client = Etcd([url])
    try:
        _, (found,) = await client.transaction([], [get(KEYS.home(1))])
        return Configuration.from_json(found.values[0].value)
    finally:
        await client.close()


@pytest.fixture
def last(tmp_path: Path) -> Iterator[list[str]]:
    """Return arguments of `jumpmq force-leader` for a copy that may lack commits, with all better copies lost."""
    directory = tmp_path / "data"
    opened = Opened(directory)
    opened.store.append(1, make_messages(1, 30))
    opened.commit()
    prepare(directory, ME, 3, opened.store)
    opened.close()
    with etcd(tmp_path) as members:
        member = json.dumps({"member": ME.member, "home": 1})
        values = {KEYS.id: ME.id, KEYS.member("last"): member, KEYS.home(1): LOST.to_json().decode()}
        asyncio.run(_put(members[0].url, values))
        where = ["--data-dir", str(directory), "--node", "last", "--cluster", "test", "--etcd", members[0].url]
        yield ["force-leader", "1", *where]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["CopyDirectory __init__", "losses write", "ConfigurationKey swap"])
def test_a_killed_command_is_repeated(last: list[str], step: str, when: str) -> None:
    directory, url = Path(last[3]), last[-1]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *step.split(), when, *last], check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run("jumpmq", *last)
    assert done.returncode == 0, done.stderr
    told = "last.disklog- was made the leader of home 1 by force in epoch 5, without the copies of two, three: commits"
    assert done.stdout.startswith(told)
    ((loss, _),) = losses.read(directory)
    assert loss.startswith(told)
    value = asyncio.run(_configuration(url))
    assert (value.leader, value.set, value.min) == ("last.disklog-", ("last.disklog-",), 1)
    assert Noted.decode((directory / NOTE).read_bytes()).disk == "disklog-"
    opened = Opened(directory)
    assert sum(len(opened.store.read(batch)) for batch in opened.store.batches()[1]) == 30
    opened.close()
