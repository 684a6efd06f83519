"""Completion of names by the shell: queues, exchanges, users and virtual hosts, from the broker."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import typer

from jumpmq.management import DEFAULT_URL, ManagementClient, ManagementError

TIMEOUT = 2.0
"""Time limit for the broker's answer after the tab key, in seconds."""

MOST = 200
"""Maximum number of completions; more would fill the terminal."""

KINDS = {
    "queue": "queues",
    "source": "queues",
    "exchange": "exchanges",
    "username": "users",
    "vhost_name": "vhosts",
    "vhost": "vhosts",
    "node": "nodes",
}
"""API resource listed for a verb's parameter, by parameter name."""

IN_VHOST = ("queues", "exchanges")


def with_completion(parameters: Iterable[inspect.Parameter]) -> None:
    """Add shell completion to the parameters of a verb that name the broker's objects."""
    for parameter in parameters:
        kind = KINDS.get(parameter.name)
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if kind is not None and hasattr(info, "autocompletion"):
                info.autocompletion = _completer(kind)


def _completer(kind: str) -> Callable[[typer.Context, str], list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return names(kind, incomplete, context.params)

    return complete


def names(kind: str, incomplete: str, options: dict[str, Any]) -> list[str]:
    """Return the sorted names with a given beginning; empty without an answer of the broker: a shell shows no errors.

    Args:
        kind: ``queues``, ``exchanges``, ``users``, ``vhosts`` or ``nodes``.
        incomplete: typed beginning of the name.
        options: typed general options, by parameter.
    """
    path = [kind, options.get("vhost") or "/"] if kind in IN_VHOST else [kind]
    try:
        client = ManagementClient(options.get("url") or os.environ.get("JUMPMQ_URL", DEFAULT_URL), TIMEOUT)
        found = [str(one["name"]) for one in client.get(*path, columns="name")]
    except ManagementError:
        return []
    return sorted(name for name in found if name and name.startswith(incomplete))[:MOST]
