"""Names from other users print no escape sequences, no extra lines and no change of text direction."""

import json
import unicodedata
from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.verbs.control import Control, Output

NASTY = "q\x1b]0;title\x07\x1b[2J\x9b31m\t\x7f\u202egnp\u2028\u200f end"
ESCAPED = r"q\x1b]0;title\x07\x1b[2J\x9b31m\t\x7f\u202egnp\u2028\u200f end"


def is_text(shown: str) -> bool:
    return not any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") for one in shown if one not in "\n\t")


@pytest.mark.parametrize("formatter", ["table", "pretty_table", "csv", "json"])
def test_listings_escape_what_is_not_printed(
    channel: BlockingChannel,
    output: Output,
    unique: Callable[[str], str],
    formatter: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    name = unique(NASTY)
    channel.queue_declare(name, arguments={"x-dead-letter-exchange": f"{NASTY}\r\n"})
    text = output("list_queues", "name", "arguments", "--formatter", formatter)
    assert is_text(text)
    if formatter == "json":
        assert name in [one["name"] for one in json.loads(text)]
    else:
        assert ESCAPED in text
    channel.queue_delete(name)


def test_sentences_and_errors_escape_it_too(
    channel: BlockingChannel, control: Control, output: Output, unique: Callable[[str], str]
) -> None:
    name = unique(NASTY)
    channel.queue_declare(name)
    assert is_text(output("explain", name))
    refused = control("delete_queue", f"{name}.missing")
    assert refused.returncode
    assert is_text(refused.stdout + refused.stderr)
    exported = output("export_definitions", "-")
    assert is_text(exported)
    assert json.loads(exported)["users"]
    channel.queue_delete(name)
