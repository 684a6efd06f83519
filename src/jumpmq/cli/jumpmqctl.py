"""`jumpmqctl`: rabbitmqctl's verbs, spoken to a broker's management API."""

from __future__ import annotations

import os
import sys

import typer

from jumpmq.cli.errors import CommandError, command_error
from jumpmq.cli.session import verb_first, with_general_options
from jumpmq.cli.verbs import (
    connections,
    definitions,
    hashing,
    limits,
    listings,
    node,
    permissions,
    policies,
    queues,
    topic_permissions,
    users,
    vhosts,
    watermarks,
)
from jumpmq.management import ManagementError

SUBJECTS = (
    node,
    listings,
    queues,
    policies,
    hashing,
    users,
    permissions,
    topic_permissions,
    limits,
    vhosts,
    connections,
    definitions,
    watermarks,
)

app = typer.Typer(name="jumpmqctl", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def jumpmqctl() -> None:
    """Look at a JumpMQ broker and operate it, with rabbitmqctl's verbs."""


for _subject in SUBJECTS:
    for _verb in _subject.VERBS:
        app.command(_verb.__name__)(with_general_options(_verb))


def main() -> None:
    """Runs `jumpmqctl`; an error is told on stderr and by the exit status that rabbitmqctl gives it."""
    try:
        _call(sys.argv[1:])
    except CommandError as error:
        typer.echo(f"{error.lead}{error}", err=True)
        sys.exit(error.status)
    except SystemExit as end:
        sys.exit(os.EX_USAGE if end.code == 2 else end.code)


def _call(arguments: list[str]) -> None:
    try:
        app(verb_first(arguments), prog_name="jumpmqctl")
    except ManagementError as error:
        raise command_error(error) from None


if __name__ == "__main__":
    main()
