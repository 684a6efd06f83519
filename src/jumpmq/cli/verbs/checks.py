"""Health checks for scripts, as in rabbitmq-diagnostics: exit status 0 if healthy, otherwise 69."""

from __future__ import annotations

import os
import socket
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk space", "copies_alarm": "copies"}
"""Alarms of a node, with descriptions."""

Port = Annotated[int, typer.Argument(metavar="PORT", min=0, max=65535, help="number of the port")]
Protocol = Annotated[str, typer.Argument(metavar="PROTOCOL", help="amqp, amqp/ssl, http or https")]


class TimeUnit(StrEnum):
    """Units of time until the expiry of a certificate."""

    days = "days"
    weeks = "weeks"
    months = "months"
    years = "years"


def alarms(session: Session) -> None:
    """Shows the alarms in effect, on any node."""
    node = session.node_name
    session.inform(f"Asking node {node} to report any known resource alarms ...")
    found = _alarms(session.api.get("nodes"))
    session.say("\n".join(found) or f"Node {node} reported no alarms, local or clusterwide")


def check_alarms(session: Session) -> None:
    """Fails if an alarm is in effect on any node."""
    node = session.node_name
    session.inform(f"Asking node {node} to report any local resource alarms ...")
    _require_none(session, node, session.api.get("nodes"), "no alarms, local or clusterwide")


def check_local_alarms(session: Session) -> None:
    """Fails if an alarm is in effect on this node."""
    node = session.node_name
    session.inform(f"Asking node {node} to report any local resource alarms ...")
    _require_none(session, node, [session.api.get("nodes", node)], "no local alarms")


def _require_none(session: Session, node: str, nodes: list[dict[str, Any]], well: str) -> None:
    found = _alarms(nodes)
    if found:
        raise CommandError("\n".join(found))
    session.say(f"Node {node} reported {well}")


def _alarms(nodes: list[dict[str, Any]]) -> list[str]:
    return [
        f"{subject} alarm on node {one['name']}{' (see list_copies)' if key == 'copies_alarm' else ''}"
        for one in nodes
        for key, subject in ALARMS.items()
        if one.get(key)
    ]


def listeners(session: Session) -> None:
    """Lists the listeners of the node."""
    node = session.node_name
    session.inform(f"Asking node {node} to report its protocol listeners ...")
    found = _listeners(session)
    if session.is_json or session.formatter is not None:
        names = ["node", "interface", "port", "protocol"]
        session.table(names, [[node, one["ip_address"], one["port"], one["protocol"]] for one in found])
        return
    for one in found:
        session.say(f"Interface: {one['ip_address']}, port: {one['port']}, protocol: {one['protocol']}")


def check_port_listener(session: Session, port: Port) -> None:
    """Fails unless the node listens on a port."""
    node = session.node_name
    session.inform(f"Asking node {node} if there's an active listener on port {port} ...")
    ports = sorted({one["port"] for one in _listeners(session)})
    if port not in ports:
        raise CommandError(
            f"No listener for port {port} is active on node {node}. "
            f"Found listeners that use the following ports: {', '.join(map(str, ports))}"
        )
    session.say(f"A listener for port {port} is running on node {node}.")


def check_protocol_listener(session: Session, protocol: Protocol) -> None:
    """Fails unless the node listens for a protocol."""
    node = session.node_name
    session.inform(f"Asking node {node} if there's an active listener for protocol {protocol} ...")
    protocols = sorted({one["protocol"] for one in _listeners(session)})
    if protocol.lower() not in protocols:
        raise CommandError(
            f"No listener for protocol {protocol} is active on node {node}. "
            f"Found listeners for the following protocols: {', '.join(protocols)}"
        )
    session.say(f"A listener for protocol {protocol} is running on node {node}.")


def check_port_connectivity(
    session: Session,
    address: Annotated[
        str | None, typer.Option("--address", help="address of the node; by default the address of --url")
    ] = None,
) -> None:
    """Fails unless all of the node's ports accept connections from this machine."""
    node, host = session.node_name, address or urlsplit(session.url).hostname or "localhost"
    session.inform(f"Testing TCP connections to all active listeners on node {node} ...")
    ports = sorted({one["port"] for one in _listeners(session)})
    failed = []
    for port in ports:
        session.inform(f"Will connect to {host}:{port}")
        try:
            socket.create_connection((host, port), timeout=session.timeout).close()
        except OSError as error:
            failed.append(f"{host}:{port}: {error}")
    if failed:
        raise CommandError("Connection to ports of the following listeners failed:\n" + "\n".join(failed))
    session.say(f"Successfully connected to ports {', '.join(map(str, ports))} on node {node}.")


def _listeners(session: Session) -> list[dict[str, Any]]:
    node, found = session.node_name, session.api.get("overview").get("listeners", [])
    return [one for one in found if one["node"] == node]


def check_running(session: Session) -> None:
    """Fails unless the broker has started."""
    session.inform(f"Checking if the broker is running on node {session.node_name} ...")
    _say_that_it_runs(session)


def is_running(session: Session) -> None:
    """Fails unless the broker has started."""
    session.inform(f"Asking node {session.node_name} for its status ...")
    _say_that_it_runs(session)


def _say_that_it_runs(session: Session) -> None:
    node = session.node_name
    if session.node is not None and not session.api.get("nodes", node)["running"]:
        raise CommandError(f"JumpMQ on node {node} does not run")
    session.say(f"JumpMQ on node {node} is fully booted and running")


def check_virtual_hosts(session: Session) -> None:
    """Fails unless all virtual hosts run."""
    node = session.node_name
    session.inform(f"Checking if all vhosts are running on node {node} ...")
    _require_well(session, "virtual-hosts")
    session.say(f"Node {node} reported all vhosts as running")


def check_certificate_expiration(
    session: Session,
    within: Annotated[int, typer.Option("--within", min=1, help="number of units from now on")] = 4,
    unit: Annotated[TimeUnit, typer.Option("--unit")] = TimeUnit.weeks,
) -> None:
    """Fails if a certificate of the node expires soon."""
    session.inform(f"Checking certificate expiration on node {session.node_name} ...")
    _require_well(session, "certificate-expiration", str(within), unit.value)
    session.say(f"No certificates are expiring within {within} {unit.value}.")


def _require_well(session: Session, *check: str) -> None:
    session.require_asked()
    try:
        session.api.get("health", "checks", *check)
    except Refusal as refusal:
        if refusal.code == 503:
            raise CommandError(str(refusal), os.EX_UNAVAILABLE) from None
        raise


def server_version(session: Session) -> None:
    """Shows the version of the broker."""
    session.require_asked()
    session.inform(f"Asking node {session.node_name} for its version ...")
    session.say(session.api.get("overview")["product_version"])


VERBS = (
    alarms, check_alarms, check_local_alarms, listeners, check_port_listener, check_protocol_listener,
    check_port_connectivity, check_running, is_running, check_virtual_hosts, check_certificate_expiration,
    server_version,
)  # fmt: skip
