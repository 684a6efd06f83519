"""The outputs for users and a sharded exchange in docs/first-hour.md are those of its commands."""

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.commands import run

import jumpmq

PAGE = (Path(__file__).parent.parent / "docs" / "first-hour.md").read_text()


def commands(first: str, last: str) -> list[list[str]]:
    """The arguments of the page's `jumpmqctl` commands between two headings."""
    lines = PAGE.partition(f"## {first}\n")[2].partition(f"## {last}\n")[0]
    return [shlex.split(line) for line in re.findall(r"^\$ jumpmqctl (.*)$", lines, re.MULTILINE)]


def test_users_and_a_sharded_exchange_are_as_the_page_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's commands have the shown output, in order: `guest` is deleted before the program connects."""
    [url] = re.findall(r"^\$ export JUMPMQ_URL=(\S+)", PAGE, re.MULTILINE)
    [program] = re.findall(r"```python\n(import pika\n.*?)```", PAGE, re.DOTALL)
    *lines, warning = re.findall(r"^(?:Listing shards of.*|name\t.*|sharding: .*|Warning: shard .*)\n", PAGE, re.M)
    with jumpmq.running(node="jumpmq@sparrow") as broker:
        url = url.replace(":15672", f":{broker.http_port}")
        monkeypatch.setenv("JUMPMQ_URL", broker.http_url)
        for command in commands("A user of your own", "Look around"):
            if command[0] in ("shards", "consistent_hash_exchange_ring_state"):
                continue
            if command[0] == "add_user":
                command.append("PASSWORD")
            if command[0] == "delete_user":
                monkeypatch.setenv("JUMPMQ_URL", url)
            result = run("jumpmqctl", *command)
            assert result.returncode == 0, (command, result.stderr)
        state: dict[str, object] = {}
        assert '@127.0.0.1"' in program
        exec(program.replace('@127.0.0.1"', f'@127.0.0.1:{broker.port}"'), state)
        result = run("jumpmqctl", "shards", "shard.images")
        state["connection"].close()  # type: ignore[attr-defined]
    assert result.stdout == "".join(lines)
    assert result.stderr == warning
