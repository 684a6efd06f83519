"""The broker itself: `ping`, `status`, `cluster_status`, `environment`, `report`, `stop`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from jumpmq._version import __version__
from jumpmq.cli.errors import CommandError, counted
from jumpmq.cli.formatters import FormatterName, as_json_object
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo
from jumpmq.cli.verbs.checks import ALARMS
from jumpmq.management import NoAnswer, Refusal


class SizeUnit(StrEnum):
    """Units of size."""

    bytes = "bytes"
    mb = "mb"
    gb = "gb"


OCTETS = {SizeUnit.bytes: 1, SizeUnit.mb: 10**6, SizeUnit.gb: 10**9}


def ping(session: Session) -> None:
    """Checks that the broker answers and accepts the user."""
    session.inform(f"Will ping {session.api.address}. Timeout: {session.timeout * 1000:.0f} ms.")
    session.api.get("whoami")
    session.say("Ping succeeded")


def status(
    session: Session,
    unit: Annotated[SizeUnit, typer.Option("--unit", help="unit of memory and disk space")] = SizeUnit.gb,
) -> None:
    """Shows the state of the broker: uptime, alarms, memory, descriptors, disk space, totals, listeners."""
    overview = session.api.get("overview")
    node = session.api.get("nodes", session.node_name)
    if not node["running"]:
        raise CommandError(f"node {node['name']} does not run")
    totals = overview.get("object_totals", {}) | {"vhosts": len(session.api.get("vhosts"))}
    if session.formatter is FormatterName.json:
        echo(as_json_object(_facts(overview, node, totals)))
        return
    session.inform(f"Status of node {node['name']} ...")
    echo("\n".join(_report(overview, node, totals, unit)))


def cluster_status(session: Session) -> None:
    """Shows the cluster: name, nodes, alarms, listeners."""
    overview = session.api.get("overview")
    nodes = session.api.get("nodes")
    names, running = ([one["name"] for one in nodes if one["running"] or not wanted] for wanted in (False, True))
    name, version = overview["node"], f"{overview['product_name']} {overview['product_version']}"
    (node,) = (one for one in nodes if one["name"] == name)
    if session.is_json:
        shown = {"cluster_name": overview["cluster_name"], "disk_nodes": names, "running_nodes": running}
        shown |= {"versions": {name: version}, "partitions": {}, "alarms": _alarms(node)}
        listeners = {one: _facts(overview, {"name": one}, {"vhosts": 0})["listeners"] for one in running}
        echo(as_json_object(shown | {"listeners": listeners}))
        return
    session.inform(f"Cluster status of node {name} ...")
    told = [
        f"Node: {one['node']}, interface: {one['ip_address']}, port: {one['port']}, protocol: {one['protocol']}"
        for one in overview.get("listeners", [])
    ]
    sections = {
        "Basics": [f"Cluster name: {overview['cluster_name']}"],
        "Disk Nodes" if node["type"] == "disc" else "RAM Nodes": names,
        "Running Nodes": running,
        "Versions": [f"{name}: {version}"],
        "Alarms": [_alarm(one, alarm, len(nodes)) for one in nodes for alarm in _alarms(one)] or ["(none)"],
        "Network Partitions": ["(none)"],
        "Listeners": told,
    }
    echo("\n".join(line for title, lines in sections.items() for line in (title, "", *lines, "")))


def forget_cluster_node(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NODE", help="name of a stopped node")],
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="also with durable queues that no running node could serve, and lose their messages"
        ),
    ] = False,
) -> None:
    """Removes a stopped node from the cluster, with all queues of the node; the messages are lost to the cluster.

    A node with durable queues requires `--yes`, since nobody can tell whether the queues of a stopped node are empty.
    The command is refused while another node serves the queues from a copy, or could serve them: `drain --node NODE`
    moves them first. The command is also refused if only the node has all confirmed messages of another node's home.
    """
    session.inform(f"Removing node {name} from the cluster")
    try:
        gone = session.api.ask("DELETE", "nodes", name, query={"accept-loss": "true" if yes else "false"})["queues"]
    except Refusal as error:
        if error.code != 404:
            raise
        raise CommandError(f"node '{name}' is not in the cluster", os.EX_DATAERR) from None
    what = counted(len(gone), "queue was", "queues were")
    session.inform(f"{what} on the node and {'is' if len(gone) == 1 else 'are'} gone{':' if gone else ''}")
    for one in gone:
        session.say(f"{one['vhost']}\t{one['name']}")


def environment(session: Session) -> None:
    """Shows the settings in force, without secrets."""
    node = session.node_name
    found: dict[str, Any] = session.api.get("nodes", node, "environment")
    if session.is_json:
        echo(as_json_object(found))
        return
    session.inform(f"Application environment of node {node} ...")
    echo("\n".join(f"{name} = {_setting(value)}" for name, value in found.items()))


def _setting(value: Any) -> str:
    return "(none)" if value is None else str(value)


REPORTED = ("queues", "exchanges", "bindings", "connections", "channels", "consumers", "policies", "users")
"""Objects listed in a report, after status, cluster and settings."""


def report(session: Session) -> None:
    """Shows status, settings and objects, for reports of problems."""
    session.inform(f"Reporting server status of node {session.node_name} ...")
    for verb in (status, cluster_status, environment):
        echo(f"--- {verb.__name__} ---\n")
        verb(session, *((SizeUnit.gb,) if verb is status else ()))
        echo()
    for kind in REPORTED:
        found = session.api.get(kind)
        names = [name for name in found[0] if not isinstance(found[0][name], dict | list)] if found else []
        names = [name for name in names if name != "password_hash"]
        echo(f"--- {kind}: {len(found)} ---\n")
        if found:
            session.table(names, [[one.get(name) for name in names] for one in found])
            echo()


def version(session: Session) -> None:
    """Shows the version of the command."""
    echo(__version__)


def stop(
    session: Session,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="succeed if no broker answers")] = False,
) -> None:
    """Stops the broker in order, like SIGTERM."""
    session.inform(f"Stopping and halting {session.api.address} ...")
    try:
        session.require_asked()
        session.api.post("stop", body={})
    except NoAnswer:
        if not idempotent:
            raise
        session.inform(f"no broker answers at {session.api.address}: nothing to stop")


def _alarms(node: dict[str, Any]) -> list[str]:
    return [name for key, name in ALARMS.items() if node.get(key)]


def _alarm(node: dict[str, Any], alarm: str, nodes: int) -> str:
    return f"{alarm} in effect" if nodes == 1 else f"{alarm} in effect on node {node['name']}"


def _facts(overview: dict[str, Any], node: dict[str, Any], totals: dict[str, Any]) -> dict[str, Any]:
    """Return the status with the field names of `rabbitmqctl status --formatter json`."""
    return {
        "pid": int(node.get("os_pid", 0)),
        "rabbitmq_version": overview.get("rabbitmq_version"),
        "product_name": overview.get("product_name"),
        "product_version": overview.get("product_version"),
        "node": node["name"],
        "uptime": node.get("uptime", 0) // 1000,
        "alarms": _alarms(node),
        "memory": {"total": {"rss": node.get("mem_used")}, "strategy": "rss"},
        "file_descriptors": {
            "total_used": node.get("fd_used"),
            "total_limit": node.get("fd_total"),
            "sockets_used": node.get("sockets_used"),
            "sockets_limit": node.get("sockets_total"),
        },
        "disk_free": node.get("disk_free"),
        "disk_free_limit": node.get("disk_free_limit"),
        "vm_memory_high_watermark_limit": node.get("mem_limit"),
        "processes": {"used": node.get("proc_used"), "limit": node.get("proc_total")},
        "run_queue": node.get("run_queue"),
        "data_directory": node.get("db_dir"),
        "log_files": node.get("log_files", []),
        "config_files": node.get("config_files", []),
        "totals": {
            "connection_count": totals.get("connections", 0),
            "queue_count": totals.get("queues", 0),
            "virtual_host_count": totals["vhosts"],
        },
        "listeners": [
            {"interface": one["ip_address"], "port": one["port"], "protocol": one["protocol"]}
            for one in overview.get("listeners", [])
            if one["node"] == node["name"]
        ],
    }


def _report(overview: dict[str, Any], node: dict[str, Any], totals: dict[str, Any], unit: SizeUnit) -> Iterator[str]:
    """Yield the status as lines, in rabbitmqctl's sections; fields unknown to the broker are left out."""

    def size(name: str) -> str | None:
        return f"{round(node[name] / OCTETS[unit], 4)} {unit}" if isinstance(node.get(name), int) else None

    sections: dict[str, dict[str, Any]] = {
        "Runtime": {
            "OS PID": node.get("os_pid"),
            "Uptime (seconds)": node.get("uptime", 0) // 1000,
            "Product": f"{overview.get('product_name', '')} {overview.get('product_version', '')}",
            "RabbitMQ version": overview.get("rabbitmq_version"),
            "Node name": node["name"],
        },
        "Data directory": {"Node data directory": node.get("db_dir")},
        "Alarms": dict.fromkeys(_alarms(node), "in effect") or {"(none)": ""},
        "Memory": {"Total memory used": size("mem_used"), "Memory high watermark": size("mem_limit")},
        "File Descriptors": {
            "Total": node.get("fd_used"),
            "Limit": node.get("fd_total"),
            "Sockets": node.get("sockets_used"),
        },
        "Free Disk Space": {
            "Low free disk space watermark": size("disk_free_limit"),
            "Free disk space": size("disk_free"),
        },
        "Totals": {
            "Connection count": totals.get("connections", 0),
            "Queue count": totals.get("queues", 0),
            "Virtual host count": totals["vhosts"],
        },
        "Listeners": {
            f"Interface: {one['ip_address']}, port: {one['port']}, protocol": one["protocol"]
            for one in overview.get("listeners", [])
            if one["node"] == node["name"]
        },
    }
    for title, facts in sections.items():
        lines = [f"{name}: {fact}" if fact != "" else name for name, fact in facts.items() if fact is not None]
        if lines:
            yield from (title, "", *lines, "")


VERBS = (ping, status, cluster_status, forget_cluster_node, environment, report, version, stop)
