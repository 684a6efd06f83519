"""Reading a request: names in its path, numbers in its query, JSON in its body. What is wrong is a BadRequest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.requests import Request

from jumpmq.amqp.errors import NotFound
from jumpmq.http.errors import BadRequest

if TYPE_CHECKING:
    from jumpmq.broker import Broker
    from jumpmq.queues.classic import ClassicQueue
    from jumpmq.topology import Exchange, VirtualHost

LAST_SEQ = (1 << 63) - 1
MAX_BODY = 16 << 20
"""Octets of JSON that a request may send."""

DEFAULT_EXCHANGE = "amq.default"
"""How a path names the exchange whose name is empty."""


def broker_of(request: Request) -> Broker:
    broker: Broker = request.app.state.broker
    return broker


def name(request: Request, parameter: str) -> str:
    """A name from the path, percent-decoded."""
    try:
        return unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise BadRequest(f"the {parameter} in the path is not UTF-8") from None


def virtual_host(request: Request) -> VirtualHost:
    """The virtual host that the path names.

    Raises:
        NotFound: there is none of that name.
    """
    wanted = name(request, "vhost")
    found = broker_of(request).topology.vhosts.get(wanted)
    if found is None:
        raise NotFound(f"no vhost '{wanted}'")
    return found


def queue(request: Request) -> ClassicQueue:
    """The queue that the path names.

    Raises:
        NotFound: there is no such virtual host, or no such queue in it.
    """
    return virtual_host(request).queue(name(request, "queue"))


def exchange(request: Request, parameter: str = "exchange") -> Exchange:
    """The exchange that the path names; ``amq.default`` is the one without a name.

    Raises:
        NotFound: there is no such virtual host, or no such exchange in it.
    """
    wanted = name(request, parameter)
    return virtual_host(request).exchange("" if wanted == DEFAULT_EXCHANGE else wanted)


def number(request: Request, parameter: str, default: int | None = None) -> int:
    """A whole number from 0 from the query.

    Raises:
        BadRequest: it is something else, or missing and has no default.
    """
    text = request.query_params.get(parameter)
    if text is None:
        if default is None:
            raise BadRequest(f"the query lacks '{parameter}'")
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_SEQ):
        raise BadRequest(f"'{parameter}' must be a whole number from 0 to {LAST_SEQ}, not '{text}'")
    return int(text)


async def json_object(request: Request) -> dict[str, Any]:
    """The JSON object that the body holds; nothing at all counts as an empty one."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise BadRequest(f"the body is longer than {MAX_BODY} octets")
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value
