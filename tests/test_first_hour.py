"""What docs/first-hour.md shows of a sharded exchange is what one sees who follows it."""

import re
from pathlib import Path

from tests.cli.commands import run

import jumpmq

PAGE = (Path(__file__).parent.parent / "docs" / "first-hour.md").read_text()


def test_a_sharded_exchange_is_as_the_page_shows_it() -> None:
    (policy,) = re.findall(r"^\$ jumpmqctl set_policy images-shard (.*)$", PAGE, re.MULTILINE)
    pattern, definition = re.fullmatch(r"\"(.*)\" '(.*)'", policy).groups()  # type: ignore[union-attr]
    (program,) = re.findall(r"```python\n(import pika\n.*?)```", PAGE, re.DOTALL)
    assert 'ConnectionParameters("127.0.0.1")' in program
    *lines, warning = re.findall(r"^(?:Listing shards of.*|name\t.*|sharding: .*|Warning: shard .*)\n", PAGE, re.M)
    with jumpmq.running(node="jumpmq@sparrow") as broker:
        assert (
            run("jumpmqctl", "--url", broker.http_url, "set_policy", "images-shard", pattern, definition).returncode
            == 0
        )
        state: dict[str, object] = {}
        exec(program.replace('ConnectionParameters("127.0.0.1")', f"URLParameters({broker.amqp_url!r})"), state)
        result = run("jumpmqctl", "--url", broker.http_url, "shards", "shard.images")
        state["connection"].close()  # type: ignore[attr-defined]
    assert result.stdout == "".join(lines)
    assert result.stderr == warning
