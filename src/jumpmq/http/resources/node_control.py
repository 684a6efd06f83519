"""Operators' actions on the node: settings, log, listeners. JumpMQ's own paths."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from jumpmq.broker import BrokerError
from jumpmq.broker.telemetry import audit
from jumpmq.http.plumbing import changing, requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources.nodes import require_node
from jumpmq.http.schema.shapes import BOOLEAN, Shape, one_of

HIDDEN = {"default_pass", "etcd", "timing"}
"""Fields of the configuration with secrets, and the field that is no setting."""

LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
NO_LEVEL = logging.CRITICAL + 1

LEVEL = Shape({"level": one_of(*LEVELS, "none")}, required=("level",))
LISTENERS = Shape({"suspended": BOOLEAN}, required=("suspended",))


async def environment(request: Request) -> Response:
    """``GET /api/nodes/{node}/environment``: the settings in force, by name, without secrets."""
    require_node(request)
    config = requested.broker(request).config
    shown: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in HIDDEN:
            shown[field.name.replace("_", "-")] = str(value) if isinstance(value, Path) else value
    return answer_object(request, shown)


async def set_log_level(request: Request) -> Response:
    """``PUT /api/nodes/{node}/log-level``: set the minimum level of logged records, until the broker stops."""
    require_node(request)
    level = (await requested.shaped_body(request, LEVEL))["level"]
    audit.record("set log level", user=requested.user(request).name, to=level)
    logging.getLogger("jumpmq").setLevel(LEVELS.get(level, NO_LEVEL))
    await requested.node_forwarder(request).act("set_log_level", LEVELS.get(level, NO_LEVEL))
    return changing.deleted()


async def set_listeners(request: Request) -> Response:
    """``PUT /api/nodes/{node}/listeners``: suspend or resume listening for AMQP clients. Connected clients stay
    connected."""
    require_node(request)
    suspended = (await requested.shaped_body(request, LISTENERS))["suspended"]
    try:
        await requested.broker(request).listening.suspend(suspended)
        await requested.node_forwarder(request).act("suspend", suspended)
    except BrokerError as error:
        return JSONResponse({"error": "unavailable", "reason": str(error)}, 503)
    audit.record(f"{'suspend' if suspended else 'resume'} listeners", user=requested.user(request).name)
    return changing.deleted()


NODE, _ACCESS = "/api/nodes/{node}", Access.ADMINISTRATOR
ROUTES = [
    Endpoint("GET", f"{NODE}/environment", environment, access=_ACCESS, at_node=True),
    Endpoint("PUT", f"{NODE}/log-level", set_log_level, access=_ACCESS, shape=LEVEL, at_node=True),
    Endpoint("PUT", f"{NODE}/listeners", set_listeners, access=_ACCESS, shape=LISTENERS, at_node=True),
]
