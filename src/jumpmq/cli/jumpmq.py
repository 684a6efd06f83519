"""`jumpmq`: run a broker, and watch the broker at work."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jumpmq._version import __version__
from jumpmq.cli import spark_commands
from jumpmq.cli.errors import INTERRUPTED, fail
from jumpmq.cli.settings import CONFIG_VARIABLE, SETTINGS, SettingError
from jumpmq.cli.terminal import echo

if TYPE_CHECKING:
    from jumpmq.cli.migration.rings import Rings

DEFAULT_FILES = "~/.config/jumpmq/jumpmq.toml, or /etc/jumpmq/jumpmq.toml"


app = typer.Typer(name="jumpmq", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def jumpmq(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """A partitioned AMQP 0-9-1 message broker for Python and Spark."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command for typer, with an option per setting.

    The command gets the path of the configuration file, the settings as a mapping, and its own arguments.
    """
    own = dict(list(inspect.signature(command, eval_str=True).parameters.items())[2:])

    def called(config: Path | None, **options: Any) -> None:
        given = {name: options.pop(name) for name in own}
        command(config, options, **given)

    purpose = f"configuration in TOML; default: {DEFAULT_FILES}"
    file = typer.Option(envvar=CONFIG_VARIABLE, metavar="FILE", help=purpose)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=keyword) for one in own.values()]
    parameters += [inspect.Parameter("config", keyword, annotation=Annotated[Path | None, file], default=None)]
    for name, setting in SETTINGS.items():
        default = f" [default: {setting.default}]" if setting.default else ""
        option = typer.Option(f"--{setting.key}", metavar=setting.metavar, help=setting.purpose + default)
        parameters.append(inspect.Parameter(name, keyword, annotation=Annotated[str | None, option], default=None))
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


@app.command()
@_with_settings
def serve(file: Path | None, options: Mapping[str, str | None]) -> None:
    """Run a broker until SIGTERM or Ctrl-C. One line reports readiness, and the addresses."""
    from jumpmq.cli.serve import run

    sys.exit(run(file, options))


@app.command()
@_with_settings
def config(file: Path | None, options: Mapping[str, str | None]) -> None:
    """Show the settings of `serve` for the given options, with their origins. The output is a configuration file."""
    from jumpmq.cli.serve import settings_in_force

    try:
        settings = settings_in_force(file, options)
    except SettingError as error:
        fail(str(error), 2)
    for name, found in settings.items():
        setting = SETTINGS[name]
        if setting.secret:
            typer.echo(f"# {setting.key} is not shown  # {found.source}")
        elif found.value is not None or found.source != "default":
            typer.echo(f"{setting.key} = {setting.written(found.value)}  # {found.source}")
        else:
            typer.echo(f"# {setting.key} is not set")


@app.command()
def tls(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="directory for the files")],
    host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="another name or address of the broker")
    ] = None,
    user: Annotated[str, typer.Option(metavar="NAME", help="user in the client's certificate")] = "guest",
) -> None:
    """Make a test authority, and certificates for a broker and a client. For production, use your own authority."""
    from jumpmq.cli.certificates import make_certificates

    try:
        made = make_certificates(directory, host or (), user)
    except (OSError, ValueError) as error:
        fail(f"cannot make certificates in {directory}: {getattr(error, 'strerror', None) or error}")
    typer.echo(f"jumpmq serve --tls-cert {made.server} --tls-key {made.server_key} --tls-ca {made.ca}")
    typer.echo(f"jumpmqctl --url https://guest:guest@localhost:15671 --tls-ca {made.ca} status")


@app.command()
def migrate(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            help="AMQP URL of a RabbitMQ; a virtual host in the URL limits the move to this host",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="URL", help="management URL of a JumpMQ, with an administrator")],
    management: Annotated[
        str | None,
        typer.Option(metavar="URL", help="management URL of the RabbitMQ", show_default="port 15672 of the same host"),
    ] = None,
    definitions_only: Annotated[bool, typer.Option("--definitions-only", help="move no messages")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="keep moving new messages until SIGTERM or Ctrl-C: a bridge")
    ] = False,
    rabbitmqctl: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="rabbitmqctl of the RabbitMQ, for the rings of hash exchanges"),
    ] = None,
    rings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="output of `rabbitmqctl eval` for `jumpmq migrate-rings`"),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="certificates of the authorities trusted for both brokers")
    ] = None,
) -> None:
    """Move definitions and messages of a RabbitMQ to a JumpMQ. A repetition continues an interrupted move."""
    from rich.console import Console

    from jumpmq.cli.migration.draining import MigrationError
    from jumpmq.cli.migration.rings import RingsUnknown, read_rings, rings_of
    from jumpmq.cli.migration.run import Migration, bridge, migrate
    from jumpmq.management import ClientTLS
    from jumpmq.serving.logs import escaped

    if follow and definitions_only:
        fail("--follow moves messages, and --definitions-only moves none", 2)

    file = [] if rings is None else [rings]  # a bridge reads the file once: its rings are from before the move

    def known_rings() -> Rings:
        if rabbitmqctl is not None:
            return rings_of(rabbitmqctl)
        return read_rings(file.pop().read_text(errors="replace")) if file else {}

    tls, console = ClientTLS(ca=None if tls_ca is None else str(tls_ca)), Console(stderr=True)
    move = Migration(source, management, to, tls, known_rings, console)
    try:
        if follow:
            moved = bridge(
                move, lambda line: console.print(escaped(line), markup=False, highlight=False, soft_wrap=True)
            )
        else:
            moved = migrate(move, messages=not definitions_only)
    except (MigrationError, RingsUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"--rings: cannot read {rings}: {error.strerror}")
    except KeyboardInterrupt:
        fail("interrupted: the same command continues the move", INTERRUPTED)
    for line in moved.copied.lines():
        echo(line, err=True)
    rest = f", {moved.rest:,} are left" if follow else ""
    typer.echo(f"definitions are copied, {moved.messages:,} messages of {moved.queues:,} queues are moved{rest}")


@app.command("migrate-rings")
def migrate_rings() -> None:
    """Print an expression for `rabbitmqctl eval`; the result is the file for `jumpmq migrate --rings`."""
    from jumpmq.cli.migration.rings import EXPRESSION

    typer.echo(EXPRESSION)


@app.command()
def man(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="directory for `man -M DIR`")],
) -> None:
    """Write the manual pages of `jumpmq` and `jumpmqctl`."""
    from jumpmq.cli import jumpmqctl
    from jumpmq.cli.manual import write_pages

    try:
        for page in write_pages(directory, (app, jumpmqctl.application())):
            typer.echo(page)
    except OSError as error:
        fail(f"cannot write to {directory}: {error.strerror}")


@app.command("install-names")
def install_names(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="a directory of PATH")],
) -> None:
    """Install `jumpmqctl` into a directory, under the names of RabbitMQ's tools."""
    from jumpmq.cli import names

    try:
        for path in names.install_names(directory):
            typer.echo(path)
    except OSError as error:
        fail(f"cannot install names in {directory}: {error.filename or directory} {error.strerror}")


@app.command()
def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="data directory of a stopped broker")],
) -> None:
    """List the problems of a data directory, without changes. The exit status is 1 if there are problems."""
    from jumpmq.cli import salvaging

    try:
        whole = salvaging.check(directory)
    except salvaging.StoreError as error:
        fail(str(error))
    sys.exit(0 if whole else 1)


@app.command()
def salvage(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="damaged data directory of a stopped broker")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="new data directory for the readable data")],
) -> None:
    """Copy the readable data of a damaged data directory into a new directory."""
    from jumpmq.cli import salvaging

    try:
        salvaging.salvage(directory, to)
    except salvaging.StoreError as error:
        fail(str(error))


@app.command()
@_with_settings
def force_leader(
    file: Path | None,
    options: Mapping[str, str | None],
    home: Annotated[int, typer.Argument(metavar="HOME", min=1, help="number of the home in list_copies")],
) -> None:
    """Make this node's copy the leader of a home, after the loss of all complete copies.

    Stop the node's broker first. Messages missing from the copy are lost for good; their number is printed, and kept
    among the losses. The options are the options of `serve`.
    """
    from jumpmq.broker import BrokerError, Config
    from jumpmq.cli import salvaging
    from jumpmq.cli.serve import settings_in_force

    try:
        config = Config(**{name: found.value for name, found in settings_in_force(file, options).items()})
        salvaging.force_leader(config, home)
    except SettingError as error:
        fail(str(error), 2)
    except BrokerError as error:
        fail(str(error))


@app.command()
def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON lines, CSV with a head, or a SQLite database")
    ],
    table: Annotated[str, typer.Option(help="table of a SQLite database")] = "deliveries",
    as_json: Annotated[
        bool, typer.Option("--json", help="print a JSON object per fault, and one with the sums")
    ] = False,
) -> None:
    """Verify the handling of every key's messages: in order, once, and by a single owner at a time.

    Consumers write a row for each handled message, in the same transaction: `key`, `number` (the message's number among
    the messages of its key) or `message` (the id), `epoch` (of the header `x-owner-epoch`), and any other columns.
    `jumpmq.ordering` writes such rows. Rows with a violation are shown, and the exit status is then 1.
    """
    from jumpmq.cli import verifying

    try:
        held = verifying.verify(files, table, as_json)
    except verifying.UnreadableRecords as error:
        fail(str(error))
    if not held:
        raise typer.Exit(1)


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="keep the broker's data and the table in this directory")
    ] = None,
    flights: Annotated[int | None, typer.Option(min=1, help="number of flights", show_default="all 336,776")] = None,
) -> None:
    """Send a year of flights through a consistent hash exchange into a Spark table."""
    if keep:
        _make_empty(keep)
    try:
        from pyspark.errors import PySparkException

        from jumpmq.broker import BrokerError
        from jumpmq.cli.demo.publish import PublishError
        from jumpmq.cli.demo.run import how_to_look, run_demo
    except ModuleNotFoundError as missing:
        fail(f"the demo needs the package {missing.name}: pip install 'jumpmq[demo]'")
    try:
        broken = run_demo(keep, flights)
    except (BrokerError, PublishError, FileNotFoundError) as error:
        fail(str(error))
    except PySparkException as error:
        fail(f"Spark failed: {str(error).splitlines()[0]}")
    if keep:
        typer.echo(f"\n{how_to_look(keep.resolve())}")
    if broken:
        fail("; ".join(broken))


app.add_typer(spark_commands.pipeline)
app.command()(spark_commands.uniformity)
app.command()(spark_commands.plan)


def main() -> None:
    """Run `jumpmq`. Errors are one line on stderr, with exit status 1 (2 for a wrong command line)."""
    app()


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = next(directory.iterdir(), None)
    except OSError as error:
        fail(f"cannot use {directory}: {error.strerror}")
    if occupied:
        fail(f"{directory} is not empty: --keep needs a new or empty directory")


if __name__ == "__main__":
    main()
