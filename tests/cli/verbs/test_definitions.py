"""`export_definitions` and `import_definitions`."""

import json
from pathlib import Path

from pika.adapters.blocking_connection import BlockingChannel
from tests.cli.commands import run
from tests.cli.verbs.control import Failure, Output

import jumpmq


def test_definitions_go_to_another_broker(
    running: jumpmq.RunningBroker, output: Output, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.exchange_declare("prices", "x-consistent-hash", durable=True)
    channel.queue_declare("prices-1", durable=True)
    channel.queue_bind("prices-1", "prices", "3")
    file = tmp_path / "definitions.json"
    assert output("export_definitions", str(file)) == f'Exporting definitions in JSON to a file at "{file}" ...\n'
    assert file.stat().st_mode & 0o077 == 0
    with jumpmq.running() as other:
        imported = run("jumpmqctl", "import_definitions", file, JUMPMQ_URL=other.http_url)
        assert (imported.returncode, imported.stderr) == (0, "")
        bindings = run("jumpmqctl", "-s", "list_bindings", "source_name", "routing_key", JUMPMQ_URL=other.http_url)
        assert "prices\t3\n" in bindings.stdout


def test_a_dash_is_standard_output(output: Output) -> None:
    assert {"users", "vhosts", "policies", "queues"} <= json.loads(output("export_definitions", "-")).keys()


def test_files_that_cannot_be(failure: Failure, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("not JSON")
    missing = tmp_path / "missing" / "definitions.json"
    assert failure("export_definitions", str(missing)) == (
        65,
        f"Error (argument validation): Bad argument: Directory {missing.parent} does not exist\n",
    )
    assert failure("import_definitions", str(missing)) == (
        65,
        f"Error (argument validation): Bad argument: File {missing} does not exist\n",
    )
    status, said = failure("import_definitions", str(wrong))
    assert (status, said.startswith("Error:\nFailed to deserialise input (format: JSON)")) == (65, True)
