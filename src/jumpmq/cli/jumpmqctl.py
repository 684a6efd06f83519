"""`jumpmqctl`: rabbitmqctl's verbs, spoken to a broker's management API."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from jumpmq.cli.columns import BINDINGS, EXCHANGES, QUEUES, Listing, UnknownColumn
from jumpmq.cli.formatters import FORMATTERS, FormatterName
from jumpmq.cli.management import DEFAULT_URL, ManagementAPI, ManagementError

app = typer.Typer(
    name="jumpmqctl", no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback()
def jumpmqctl() -> None:
    """Look at a JumpMQ broker, with rabbitmqctl's verbs."""


def _add_listing(listing: Listing) -> None:
    """Adds the command `list_*` for one kind of object."""

    def list_objects(
        columns: Annotated[list[str] | None, typer.Argument(metavar="COLUMN")] = None,
        vhost: Annotated[str, typer.Option("--vhost", "-p", help="virtual host")] = "/",
        url: Annotated[str, typer.Option(envvar="JUMPMQ_URL", help="management URL of the broker")] = DEFAULT_URL,
        formatter: Annotated[
            FormatterName | None, typer.Option(help="table unless told: drawn on a terminal, else separated by tabs")
        ] = None,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no informational messages")] = False,
        silent: Annotated[bool, typer.Option("--silent", "-s", help="the same, and no header row")] = False,
        no_table_headers: Annotated[bool, typer.Option("--no-table-headers", help="no header row")] = False,
    ) -> None:
        names = listing.choose(columns or [])
        form = formatter or (FormatterName.pretty_table if sys.stdout.isatty() else FormatterName.table)
        if form in (FormatterName.table, FormatterName.pretty_table) and not (quiet or silent):
            typer.echo(f"Listing {listing.kind} for vhost {vhost} ...")
        rows = listing.rows(ManagementAPI(url).list(listing.kind, vhost), names)
        typer.echo(FORMATTERS[form](names, rows, not (silent or no_table_headers)), nl=False)

    columns = f"Columns: {', '.join(sorted(listing.columns))}. By default: {', '.join(listing.default)}."
    app.command(f"list_{listing.kind}", help=f"{listing.purpose}\n\n{columns}")(list_objects)


for _listing in (QUEUES, EXCHANGES, BINDINGS):
    _add_listing(_listing)


def main() -> None:
    """Runs `jumpmqctl`; an error is one line on stderr and the exit status that rabbitmqctl gives it."""
    try:
        app()
    except UnknownColumn as error:
        _fail(f"Error (argument validation): {error}", os.EX_USAGE)
    except ManagementError as error:
        _fail(f"Error: {error}", error.status)
    except SystemExit as end:
        sys.exit(os.EX_USAGE if end.code == 2 else end.code)


def _fail(text: str, status: int) -> NoReturn:
    typer.echo(text, err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
