"""`jumpmq`: run a broker, see it at work."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from jumpmq._version import __version__


class LogLevel(StrEnum):
    """How much a broker says on stderr."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


app = typer.Typer(name="jumpmq", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def jumpmq() -> None:
    """A partitioned AMQP 0-9-1 message broker for Python and Spark."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(envvar="JUMPMQ_HOST", help="address to listen on; 0.0.0.0 for all of this machine's")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="JUMPMQ_PORT", min=0, max=65535, help="of AMQP; 0 picks a free one")
    ] = 5672,
    http_port: Annotated[
        int, typer.Option(envvar="JUMPMQ_HTTP_PORT", min=0, max=65535, help="of the management API; 0 picks a free one")
    ] = 15672,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="JUMPMQ_DATA_DIR",
            help="where definitions and messages are kept",
            show_default="~/.local/share/jumpmq",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(envvar="JUMPMQ_NODE", help="name of this node", show_default="jumpmq@HOST")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="JUMPMQ_LOG_LEVEL", help="what to log on stderr")
    ] = LogLevel.info,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            envvar="JUMPMQ_MEMORY_LIMIT",
            help="held for messages at which publishers are blocked: a size such as 2GB, or a share of this machine's "
            "or container's memory such as 0.4",
            show_default="0.4",
        ),
    ] = None,
    disk_free_limit: Annotated[
        str | None,
        typer.Option(
            envvar="JUMPMQ_DISK_FREE_LIMIT",
            help="free disk space below which publishers are blocked, such as 50MB",
            show_default="50MB",
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. One line says when it is ready, and where."""
    from jumpmq.broker import BrokerError, Config
    from jumpmq.cli.serve import default_data_dir, serve

    named: dict[str, Any] = {} if node is None else {"node": node}
    named |= {"memory_limit": memory_limit, "disk_free_limit": disk_free_limit}
    directory = data_dir or default_data_dir()
    try:
        serve(Config(host=host, port=port, http_port=http_port, data_dir=directory, log_level=log_level, **named))
    except BrokerError as error:
        _fail(str(error))


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="leave the broker's data and the table in this directory")
    ] = None,
    flights: Annotated[int | None, typer.Option(min=1, help="how many", show_default="all 336,776")] = None,
) -> None:
    """Send a year of flights through a consistent hash exchange into a Spark table."""
    try:
        from pyspark.errors import PySparkException

        from jumpmq.broker import BrokerError
        from jumpmq.cli.demo.publish import PublishError
        from jumpmq.cli.demo.run import how_to_look, run_demo
    except ModuleNotFoundError as missing:
        _fail(f"the demo needs the package {missing.name}: pip install 'jumpmq[demo]'")
    if keep:
        _make_empty(keep)
    try:
        broken = run_demo(keep, flights)
    except (BrokerError, PublishError, FileNotFoundError) as error:
        _fail(str(error))
    except PySparkException as error:
        _fail(f"Spark failed: {str(error).splitlines()[0]}")
    if keep:
        typer.echo(f"\n{how_to_look(keep.resolve())}")
    if broken:
        _fail("; ".join(broken))


def main() -> None:
    """Runs `jumpmq`; errors are one line on stderr, with exit status 1 (2 for a wrong command line)."""
    app()


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = next(directory.iterdir(), None)
    except OSError as error:
        _fail(f"cannot use {directory}: {error.strerror}")
    if occupied:
        _fail(f"{directory} is not empty: --keep wants a new directory")


def _fail(text: str) -> NoReturn:
    typer.echo(f"jumpmq: {text}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
