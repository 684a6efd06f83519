"""`jumpmq man` writes manual pages with every command and option."""

import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main
from tests.cli.commands import run
from typer.core import TyperGroup

from jumpmq.cli import jumpmq, jumpmqctl


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("man")
    result = run("jumpmq", "man", directory)
    assert result.stdout.split() == [str(directory / "man1" / name) for name in ("jumpmq.1", "jumpmqctl.1")]
    return directory / "man1"


@pytest.mark.parametrize("app", [jumpmq.app, jumpmqctl.application()], ids=["jumpmq", "jumpmqctl"])
def test_every_command_and_option_is_told_of(app: typer.Typer, pages: Path) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    text = (pages / f"{command.name}.1").read_text().replace("\\-", "-")
    for name, verb in command.commands.items():
        assert f'.SS "{name}' in text
        for parameter in verb.params:
            if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
                assert ", ".join(parameter.opts) in text


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_they_are_set_without_a_warning(pages: Path) -> None:
    for page in pages.iterdir():
        result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.strip()


def test_a_place_that_cannot_be_written_is_told_in_a_line() -> None:
    result = run("jumpmq", "man", "/dev/null/man")
    assert (result.returncode, result.stderr) == (1, "jumpmq: cannot write to /dev/null/man: Not a directory\n")
