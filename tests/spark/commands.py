"""The command line in the tests' common Spark session."""

from typer.testing import CliRunner

from jumpmq.cli.jumpmq import app


def run(*arguments: object, status: int = 0) -> str:
    """Return the output of a command, run in the common Spark session."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == status, (result.output, result.exception)
    return result.output
