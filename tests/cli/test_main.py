"""`python -m jumpmq` behaves as the program `jumpmq`; a plain `serve` takes a faster code path."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import READY, run, serving

from jumpmq.cli.settings import plainly_written

ONLY_FOR_COMMANDS = {"typer", "pydantic", "rich", "pyspark"}
ONLY_FOR_HTTP = {
    "jumpmq.http.application",
    "uvicorn",
    "starlette",
    "anyio",
    "click",
    "h11",
    "prometheus_client",
    "email",
}
ONLY_WHERE_ASKED = {"re2", "pyarrow"}


def test_a_broker_that_nobody_asks_has_only_loaded_what_it_needs(tmp_path: Path) -> None:
    line = "import sys, jumpmq.__main__ as main; from jumpmq.cli import serve; serve.notify = print_loaded; main.main()"
    printing = "print_loaded = lambda state: print(*sys.modules, flush=True); "
    arguments = ["serve", "--port", "0", "--http-port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; " + printing + line, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert READY.search(process.stdout.readline())
        loaded = process.stdout.readline().split()
        process.terminate()
    assert "jumpmq.broker" in loaded
    assert not (ONLY_FOR_COMMANDS | ONLY_FOR_HTTP | ONLY_WHERE_ASKED) & set(loaded)


@pytest.mark.parametrize("arguments", [("--node=named@here",), ("--node", "named@here")])
def test_options_are_the_same_with_an_equals_sign(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with serving(tmp_path, *arguments) as served:
        assert "named@here" in served.ready_line


@pytest.mark.parametrize(
    "line", [["--help"], ["--node"], ["--nod", "x"], ["--port", "--help"], ["--", "--node"], ["node", "x"]]
)
def test_what_is_more_than_settings_takes_a_parser(line: list[str]) -> None:
    assert plainly_written(line) is None


def test_of_an_option_that_is_given_twice_the_last_counts(tmp_path: Path) -> None:
    twice = ["--port", "1", "--port", "x"]
    plain, parsed = (run("jumpmq", "serve", *twice, *more, "--data-dir", tmp_path) for more in ([], ["--node=n"]))
    assert plain.stderr == parsed.stderr == "jumpmq: --port must be a number up to 65535, or off, not 'x'\n"
    assert plain.returncode == parsed.returncode == 2


def test_the_version_by_option_and_by_command() -> None:
    assert run("jumpmq", "--version").stdout == run("jumpmq", "version").stdout != ""
