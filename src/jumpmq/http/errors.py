"""What goes wrong with a request, as RabbitMQ's management API answers it: ``{"error": ..., "reason": ...}``."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from jumpmq.amqp.errors import AccessRefused, AMQPError, NotFound, PreconditionFailed, ResourceError, ResourceLocked
from jumpmq.queues.reader import ReservationGone


class BadRequest(Exception):
    """The request itself is wrong: status 400."""


_STATUS: dict[type[AMQPError], int] = {
    NotFound: 404,
    AccessRefused: 403,
    ResourceLocked: 409,
    PreconditionFailed: 412,
    ResourceError: 503,
}


def bad_request(request: Request, error: Exception) -> JSONResponse:
    return _json(400, "bad_request", str(error))


def gone(request: Request, error: Exception) -> JSONResponse:
    return _json(410, "gone", str(error))


def protocol_error(request: Request, error: Exception) -> JSONResponse:
    """An error of the protocol, raised by the rule that both ports share."""
    assert isinstance(error, AMQPError)
    return _json(_STATUS.get(type(error), 400), error.name.lower(), error.text)


def http_error(request: Request, error: Exception) -> JSONResponse:
    """What the router says: no such path, or not that method."""
    assert isinstance(error, HTTPException)
    names = {404: "Object Not Found", 405: "method_not_allowed"}
    reason = {404: "Not Found", 405: f"{request.method} is not possible here"}.get(error.status_code, error.detail)
    return _json(error.status_code, names.get(error.status_code, "error"), reason, dict(error.headers or {}))


def unauthorized(reason: str) -> JSONResponse:
    return _json(401, "not_authorised", reason, {"WWW-Authenticate": 'Basic realm="JumpMQ Management"'})


def _json(status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "reason": reason}, status, headers)


ANSWERS = {
    BadRequest: bad_request,
    ReservationGone: gone,
    AMQPError: protocol_error,
    HTTPException: http_error,
}
