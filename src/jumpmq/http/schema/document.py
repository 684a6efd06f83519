"""The management API as an OpenAPI 3.1 document, generated from the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from jumpmq._version import __version__
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.schema.shapes import MAX_NAME

SUCCESS = {"GET": "200", "PUT": "201", "POST": "200", "DELETE": "204"}


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            for verb in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(route.path, {})[verb.lower()] = _operation(route, verb)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "JumpMQ Management API",
            "version": __version__,
            "description": "Names in paths are percent-encoded: the virtual host / is %2F.",
        },
        "security": [{"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(route: Route, verb: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": f"{verb.lower()} {route.path}",
        "parameters": [_parameter(name) for name in re.findall(r"{(\w+)}", route.path)],
        "responses": {
            SUCCESS[verb]: {"description": "as asked"},
            "default": {
                "description": "refused, with the reason",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if isinstance(route, Endpoint):
        described["summary"] = route.summary
        described["description"] = f"For users with one of the tags {', '.join(sorted(route.access.value[0]))}."
        if route.shape is not None:
            schema = route.shape.schema()
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
    return {"name": name, "in": "path", "required": True, "schema": schema}


_ERROR = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
}
