"""`jumpmqctl`: rabbitmqctl's verbs, executed by requests to a broker's management API."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError, command_error
from jumpmq.cli.grouped import GroupedVerbs
from jumpmq.cli.session import verb_first, with_general_options
from jumpmq.cli.terminal import echo
from jumpmq.cli.verbs import (
    checks,
    connections,
    consumer_groups,
    copies,
    definitions,
    delayed,
    fences,
    hashing,
    limits,
    listings,
    maintenance,
    node,
    parameters,
    permissions,
    plugins,
    policies,
    queues,
    readers,
    topic_permissions,
    users,
    vhosts,
    watermarks,
)
from jumpmq.management import ManagementError

SUBJECTS: dict[str, tuple[ModuleType, ...]] = {
    "The broker": (node, maintenance, watermarks, checks),
    "Copies of a cluster's homes": (copies,),
    "What there is": (listings,),
    "Queues, hashing and sharding": (queues, hashing, readers, consumer_groups, fences, delayed),
    "Policies and parameters": (policies, parameters),
    "Plugins, as RabbitMQ calls them": (plugins,),
    "Users": (users, permissions, topic_permissions),
    "Limits": (limits,),
    "Virtual hosts": (vhosts,),
    "Connections": (connections,),
    "Definitions": (definitions,),
}
"""Verbs by group of the help."""

VERBS = {verb.__name__: verb for subjects in SUBJECTS.values() for subject in subjects for verb in subject.VERBS}

GroupedVerbs.titles = {
    verb.__name__: title for title, subjects in SUBJECTS.items() for subject in subjects for verb in subject.VERBS
} | {"help": "The broker"}


def application(verb: str | None = None) -> typer.Typer:
    """Return the command with all verbs, or with ``verb`` only: the preparation of a verb takes a millisecond or two.

    Args:
        verb: first word of the command line. If this is not a verb, the command has all verbs.
    """
    app = typer.Typer(
        name="jumpmqctl",
        cls=GroupedVerbs,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(jumpmqctl)
    for one in [VERBS[verb]] if verb in VERBS else VERBS.values():
        app.command(one.__name__)(with_general_options(one))
    if verb not in VERBS:
        app.command("help")(help_of)
    return app


def jumpmqctl() -> None:
    """Inspect and operate a JumpMQ broker, with rabbitmqctl's verbs."""


def help_of(
    context: typer.Context,
    verb: Annotated[str | None, typer.Argument(metavar="VERB", help="verb to describe; all verbs by default")] = None,
) -> None:
    """Shows the verbs, or the usage of a verb."""
    whole = context.find_root()
    group = whole.command
    if verb is None or not isinstance(group, GroupedVerbs):
        typer.echo(whole.get_help())
        return
    name, command, _ = group.resolve_command(whole, [verb])
    typer.echo(command.get_help(typer.Context(command, whole, name)))


def main() -> None:
    """Run `jumpmqctl`; errors go to stderr, with rabbitmqctl's exit statuses."""
    try:
        _call(sys.argv[1:])
    except CommandError as error:
        echo(f"{error.lead}{error}", err=True)
        sys.exit(error.status)
    except SystemExit as end:
        sys.exit(os.EX_USAGE if end.code == 2 else end.code)


def _call(arguments: list[str]) -> None:
    try:
        words = verb_first(arguments)
        application(words[0] if words else None)(words, prog_name="jumpmqctl")
    except ManagementError as error:
        raise command_error(error) from None


if __name__ == "__main__":
    main()
