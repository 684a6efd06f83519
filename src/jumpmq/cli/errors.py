"""Failures of commands: a text for the operator and an exit status for the shell.

The exit statuses of `jumpmqctl` are rabbitmqctl's, from sysexits.h:

- 64: wrong command line
- 65: bad input, or unknown virtual host or queue
- 67: unknown user
- 69: the broker refuses the request or does not answer
- 70: the object already exists
- 76: the server at the URL is not a broker's management API
- 77: the broker refuses the user
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jumpmq.cli.terminal import echo
from jumpmq.management import InvalidRequest, ManagementError, NoAnswer, NotManagement, Refusal


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun in the singular or plural: ``1 queue``, ``2 queues``."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""


def fail(text: str, status: int = 1) -> NoReturn:
    """End `jumpmq` with a line on standard error."""
    echo(f"jumpmq: {text}", err=True)
    sys.exit(status)


class CommandError(Exception):
    """Failure of a verb.

    Attributes:
        status: the exit status.
        lead: prefix of the text on standard error.
    """

    lead = "Error:\n"

    def __init__(self, text: str, status: int = os.EX_UNAVAILABLE) -> None:
        super().__init__(text)
        self.status = status


class UsageError(CommandError):
    """The command line is wrong."""

    lead = "Error (argument validation): "

    def __init__(self, text: str, status: int = os.EX_USAGE) -> None:
        super().__init__(text, status)


class NoVirtualHost(CommandError):
    """The virtual host named on the command line does not exist."""

    lead = ""

    def __init__(self, vhost: str) -> None:
        super().__init__(f"Virtual host '{vhost}' does not exist", os.EX_DATAERR)


class NoQueue(CommandError):
    """The queue named on the command line does not exist; the text is RabbitMQ's."""

    lead = ""

    def __init__(self) -> None:
        super().__init__("Object (queue, stream, exchange, etc) was not found", os.EX_DATAERR)


class WrongNode(CommandError):
    """The broker at the URL is not the node named on the command line.

    Args:
        nodes: all nodes of the broker's cluster, without the node named on the command line.
    """

    def __init__(self, address: str, found: str, wanted: str, nodes: Sequence[str] = ()) -> None:
        others = f"; the nodes of its cluster are {', '.join(nodes)}" if len(nodes) > 1 else ""
        super().__init__(f"the broker at {address} is node {found}, not {wanted}{others}")


class NoUser(CommandError):
    """The user named on the command line does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f'User "{name}" does not exist', os.EX_NOUSER)


def command_error(error: ManagementError) -> CommandError:
    """Convert an error of the management API to an error for the operator."""
    match error:
        case InvalidRequest():
            return UsageError(str(error))
        case NoAnswer():
            return CommandError(f"{error}. Start a broker with `jumpmq serve`, or give the broker's URL with --url")
        case NotManagement():
            return CommandError(str(error), os.EX_PROTOCOL)
        case Refusal(code=401 | 403):
            return CommandError(str(error), os.EX_NOPERM)
        case Refusal(code=404 | 405, is_down=False):
            return CommandError(str(error), os.EX_DATAERR)
    return CommandError(str(error))
