"""`enable`, `is_enabled`, `list` and `set`: the verbs of rabbitmq-plugins, for scripts that call these verbs first.

The verbs neither change nor ask a broker: JumpMQ's equivalents of RabbitMQ's plugins are always enabled.
"""

from __future__ import annotations

import difflib
import os
from typing import Annotated

import typer

from jumpmq._version import __version__
from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo

PROVIDED = (
    "rabbitmq_auth_backend_oauth2",
    "rabbitmq_auth_mechanism_ssl",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_management",
    "rabbitmq_management_agent",
    "rabbitmq_prometheus",
    "rabbitmq_random_exchange",
    "rabbitmq_sharding",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_stream",
    "rabbitmq_tracing",
    "rabbitmq_web_dispatch",
)
"""RabbitMQ's plugins with an equivalent in JumpMQ."""

NOTES = {
    "rabbitmq_shovel": "run a shovel with `jumpmq migrate --follow`; parameters of shovels have no effect",
    "rabbitmq_stream": "clients use streams over AMQP 0-9-1; JumpMQ has no stream protocol (port 5552)",
    "rabbitmq_tracing": "JumpMQ has the firehose (`trace_on`), but writes no trace files",
}
"""Plugin features missing in JumpMQ."""

ABSENT = {
    "rabbitmq_federation": "`jumpmq migrate --follow` moves new messages of a RabbitMQ continuously",
    "rabbitmq_amqp1_0": "JumpMQ speaks AMQP 0-9-1",
    "rabbitmq_mqtt": "JumpMQ speaks AMQP 0-9-1",
    "rabbitmq_stomp": "JumpMQ speaks AMQP 0-9-1",
    "rabbitmq_auth_backend_ldap": "users come from the broker's definitions, OAuth 2 tokens or certificates",
    "rabbitmq_peer_discovery_etcd": "`jumpmq serve --cluster NAME --etcd URL` creates or joins a cluster",
    "rabbitmq_peer_discovery_k8s": "`jumpmq serve --cluster NAME --etcd URL` creates or joins a cluster",
}
"""Alternatives to often requested plugins."""

Names = Annotated[list[str], typer.Argument(metavar="PLUGIN...", help="names of RabbitMQ's plugins")]
Optional = Annotated[list[str] | None, typer.Argument(metavar="PLUGIN...", help="names of RabbitMQ's plugins")]
All = Annotated[bool, typer.Option("--all", help="all plugins")]
Ignored = Annotated[bool, typer.Option(hidden=True)]


def enable(
    session: Session, plugins: Optional = None, every: All = False, online: Ignored = False, offline: Ignored = False
) -> None:
    """Succeeds if RabbitMQ's plugins of the given names are provided, always enabled; names the missing plugins."""
    _require(plugins or (), every)
    for plugin in plugins or PROVIDED:
        session.inform(f"{plugin} is always enabled")
        if plugin in NOTES:
            echo(f"{plugin}: {NOTES[plugin]}", err=True)


def set_plugins(session: Session, plugins: Optional = None, online: Ignored = False, offline: Ignored = False) -> None:
    """Succeeds like `enable`; all other plugins stay enabled."""
    enable(session, plugins, every=True)


set_plugins.__name__ = "set"


def is_enabled(session: Session, plugins: Names, online: Ignored = False, offline: Ignored = False) -> None:
    """Tests if plugins of RabbitMQ are provided; the exit status is 69 if one is missing."""
    _require(plugins, every=False, status=os.EX_UNAVAILABLE)
    listed = ", ".join(plugins)
    session.say(f"Plugin{'s' if plugins[1:] else ''} {listed} {'are' if plugins[1:] else 'is'} enabled")


def list_plugins(
    session: Session,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="a part of the names")] = "",
    minimal: Annotated[bool, typer.Option("--minimal", "-m", help="names only")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", hidden=True)] = False,
    enabled: Annotated[bool, typer.Option("--enabled", "-e", hidden=True)] = False,
    explicitly: Annotated[bool, typer.Option("--explicitly-enabled", "-E", hidden=True)] = False,
) -> None:
    """Lists RabbitMQ's plugins with an equivalent in JumpMQ; all are enabled."""
    found = [name for name in PROVIDED if pattern in name]
    if minimal:
        for name in found:
            echo(name)
        return
    session.inform(f'Listing plugins with pattern "{pattern or ".*"}" ...')
    session.table(["name", "version", "state"], [[name, __version__, "enabled"] for name in found])


list_plugins.__name__ = "list"

VERBS = (enable, is_enabled, list_plugins, set_plugins)


def _require(plugins: list[str] | tuple[()], every: bool, status: int = os.EX_USAGE) -> None:
    """
    Raises:
        CommandError: no plugin is named, or one is not provided.
    """
    if not plugins and not every:
        raise CommandError("name a plugin, or give --all", os.EX_USAGE)
    lacking = [name for name in plugins if name not in PROVIDED]
    if lacking:
        raise CommandError("; ".join(map(_advice, lacking)), status)


def _advice(plugin: str) -> str:
    if plugin in ABSENT:
        return f"JumpMQ has no {plugin}: {ABSENT[plugin]}"
    near = difflib.get_close_matches(plugin, PROVIDED, 1)
    return f"JumpMQ has no {plugin}{f'; did you mean {near[0]}?' if near else ''}"
