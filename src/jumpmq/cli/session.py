"""A call of `jumpmqctl`: options common to all verbs, and output.

The options are rabbitmqctl's general options, and `--url` with the management URL of the broker. `--node` names a node
of the broker's cluster. A verb is a function: the first parameter is the session, the others are the verb's arguments
and options.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import typer

from jumpmq.cli.completing import with_completion
from jumpmq.cli.errors import NoVirtualHost, WrongNode
from jumpmq.cli.formatters import FORMATTERS, FormatterName, TableRows
from jumpmq.cli.terminal import echo
from jumpmq.management import DEFAULT_URL, TIMEOUT, ClientTLS, ManagementClient, Refusal

TABLES = (FormatterName.table, FormatterName.pretty_table)


@dataclass(frozen=True)
class Session:
    """General options of a call."""

    url: str
    node: str | None
    vhost: str
    formatter: FormatterName | None
    quiet: bool
    silent: bool
    no_table_headers: bool
    timeout: float
    tls: ClientTLS

    @cached_property
    def api(self) -> ManagementClient:
        """Client for the management API at `--url`.

        Raises:
            InvalidRequest: `--url` is not a URL.
            WrongNode: `--node` is neither the node at the URL, nor a node of its cluster.
        """
        client = ManagementClient(self.url, self.timeout, self.tls)
        node = self.node
        if node is not None and (found := node_of(client)) != node and node not in (nodes := _nodes_of(client)):
            raise WrongNode(client.address, found, node, nodes)
        return client

    @property
    def node_name(self) -> str:
        """Name of the node to act on: `--node`, by default the node at the URL."""
        return self.node if self.node is not None and self.api else node_of(self.api)

    def require_asked(self) -> None:
        """Raise an error if `--node` is not the node at the URL.

        Raises:
            WrongNode: `--node` names another node.
        """
        if self.node is not None and (found := node_of(self.api)) != self.node:
            raise WrongNode(self.api.address, found, self.node)

    def inform(self, text: str) -> None:
        """Announce an action, unless quiet."""
        if not (self.quiet or self.silent) and self._form in TABLES:
            echo(text)

    def say(self, text: str) -> None:
        """Report a result."""
        echo(json.dumps({"message": text}) if self._form is FormatterName.json else text)

    def table(self, names: list[str], rows: TableRows) -> None:
        """Print rows below their column names."""
        headers = not (self.silent or self.no_table_headers)
        typer.echo(FORMATTERS[self._form](names, rows, headers), nl=False)

    def in_vhost(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind (`queues`, `policies`, ...) in the virtual host.

        Raises:
            NoVirtualHost: the virtual host does not exist.
        """
        found = self.api.find(kind, self.vhost)
        if found is None:
            raise NoVirtualHost(self.vhost)
        objects: list[dict[str, Any]] = found
        return objects

    def check_vhost(self) -> None:
        """
        Raises: NoVirtualHost: the virtual host does not exist.
        """
        try:
            found = self.api.find("vhosts", self.vhost)
        except Refusal as refusal:
            if refusal.code == 401:
                return  # only administrators may read virtual hosts; for others, the next request fails
            raise
        if found is None:
            raise NoVirtualHost(self.vhost)

    @property
    def is_json(self) -> bool:
        """True for JSON output."""
        return self._form is FormatterName.json

    @property
    def _form(self) -> FormatterName:
        return self.formatter or (FormatterName.pretty_table if sys.stdout.isatty() else FormatterName.table)


def node_of(client: ManagementClient) -> str:
    """Return the name of a broker's node, or the cluster's name if the user may not see the node's name.

    The node's name is visible to users with the tag `monitoring`.
    """
    overview = client.get("overview")
    return str(overview.get("node", overview["cluster_name"]))


def _nodes_of(client: ManagementClient) -> list[str]:
    """Return the names of the nodes in a broker's cluster; empty if the user may not see the nodes."""
    try:
        return [one["name"] for one in client.get("nodes")]
    except Refusal:
        return []


def _general_options(
    url: Annotated[str, typer.Option(envvar="JUMPMQ_URL", help="management URL of the broker")] = DEFAULT_URL,
    node: Annotated[
        str | None,
        typer.Option("--node", "-n", metavar="NAME", help="node of the cluster; fail if the node is not a member"),
    ] = None,
    vhost: Annotated[str, typer.Option("--vhost", "-p", help="virtual host")] = "/",
    formatter: Annotated[
        FormatterName | None,
        typer.Option(help="format of the output; by default a table: drawn on a terminal, else separated by tabs"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no informational messages")] = False,
    silent: Annotated[
        bool, typer.Option("--silent", "-s", help="no informational messages, and no header row")
    ] = False,
    no_table_headers: Annotated[bool, typer.Option("--no-table-headers", help="no header row")] = False,
    timeout: Annotated[float, typer.Option("--timeout", "-t", min=0.001, help="seconds to wait")] = TIMEOUT,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            envvar="JUMPMQ_TLS_CA",
            metavar="FILE",
            help="authorities trusted for the broker; by default the system's",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(envvar="JUMPMQ_TLS_CERT", metavar="FILE", help="certificate presented to the broker")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(envvar="JUMPMQ_TLS_KEY", metavar="FILE", help="key of the certificate")
    ] = None,
) -> Session:
    return Session(
        url, node, vhost, formatter, quiet, silent, no_table_headers, timeout, ClientTLS(tls_ca, tls_cert, tls_key)
    )


def with_general_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as a typer command, with the general options in place of the session, after the verb's own."""
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    general = list(inspect.signature(_general_options, eval_str=True).parameters.values())
    with_completion((*own, *general))

    @functools.wraps(verb)
    def called(**given: Any) -> None:
        session = _general_options(**{option.name: given.pop(option.name) for option in general})
        verb(session, **given)

    keywords = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *general)]
    called.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    del called.__wrapped__
    return called


WITH_VALUE = (
    *("--url", "--node", "-n", "--vhost", "-p", "--formatter", "--timeout", "-t"),
    *("--tls-ca", "--tls-cert", "--tls-key"),
)
FLAGS = ("--quiet", "-q", "--silent", "-s", "--no-table-headers")


def verb_first(arguments: Iterable[str]) -> list[str]:
    """Move general options from before the verb to after the verb, as accepted by rabbitmqctl."""
    rest, leading = list(arguments), list[str]()
    while rest and (rest[0] in FLAGS or rest[0].partition("=")[0] in WITH_VALUE):
        count = 2 if rest[0] in WITH_VALUE else 1
        leading += rest[:count]
        del rest[:count]
    if rest[:1] == ["help"]:
        return rest  # `help` needs no broker
    return [*rest[:1], *leading, *rest[1:]]
