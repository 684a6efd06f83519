"""The command line in the Spark session that the tests share."""

from typer.testing import CliRunner

from jumpmq.cli.jumpmq import app


def run(*arguments: object, status: int = 0) -> str:
    """What a command prints, in the session that the tests share."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == status, (result.output, result.exception)
    return result.output
