"""What goes wrong with a request, as RabbitMQ's management API answers it: ``{"error": ..., "reason": ...}``."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import AccessRefused, AMQPError, MetadataTimeout, NotFound, ResourceError
from jumpmq.broker.bulk.reader_group import GroupInUse, NoSession, QueueInUse
from jumpmq.broker.bulk.starts import OlderDirectory
from jumpmq.broker.errors import NotCommitted
from jumpmq.broker.telemetry import audit
from jumpmq.queues.reservations import ReservationGone

MAX_REASON = 1000
"""Characters of a reason that are sent: it may quote what was asked, which may be long."""


class BadRequest(Exception):
    """The request itself is wrong: status 400.

    Attributes:
        error: RabbitMQ's word for what is wrong.
    """

    error = "bad_request"


class UnsupportedMediaType(Exception):
    """The body is of a type that is not read here: status 415."""


class ContentTooLarge(Exception):
    """What was sent is too much for one request: status 413."""


class Gone(Exception):
    """What is asked for was there once: status 410."""


class Blocked(Exception):
    """Memory or disk is short, and who publishes has to wait: status 503."""


class Unauthorized(Exception):
    """The user may not do that: status 401, as RabbitMQ says it."""


_STATUS: dict[type[AMQPError], int] = {
    NotFound: 404,
    AccessRefused: 401,
    ResourceError: 503,
    MetadataTimeout: 503,
}
"""RabbitMQ's statuses for errors of the protocol; it answers 400 to all others."""


_NAMES = {401: "not_authorized", 404: "not_found", 503: "resource_error"}


def bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BadRequest)
    return _json(400, error.error, str(error))


def unsupported_media_type(request: Request, error: Exception) -> JSONResponse:
    return _json(415, "unsupported_media_type", str(error))


def content_too_large(request: Request, error: Exception) -> JSONResponse:
    return _json(413, "content_too_large", str(error))


def gone(request: Request, error: Exception) -> JSONResponse:
    return _json(410, "gone", str(error))


def blocked(request: Request, error: Exception) -> JSONResponse:
    return _json(503, "blocked", str(error), {"Retry-After": "1"})


def not_committed(request: Request, error: Exception) -> JSONResponse:
    """The disk takes nothing: 503."""
    return _json(503, "not_committed", str(error), {"Retry-After": "5"})


def in_use(request: Request, error: Exception) -> JSONResponse:
    return _json(409, "in_use", str(error))


def locked(request: Request, error: Exception) -> JSONResponse:
    """A consumer group, or a query of another group, reads the queue."""
    return _json(423, "locked", str(error))


def no_session(request: Request, error: Exception) -> JSONResponse:
    return _json(412, "no_session", str(error))


def protocol_error(request: Request, error: Exception) -> JSONResponse:
    """An error of the protocol, raised by the rule that both ports share."""
    assert isinstance(error, AMQPError)
    if isinstance(error, AccessRefused):
        _audit(request, error.text)
    status = _STATUS.get(type(error), 400)
    return _json(status, _NAMES.get(status, "bad_request"), error.text)


def gone_away(request: Request, error: Exception) -> Response:
    """The client left in the middle of its request; this is not read."""
    return Response(status_code=400)


def forbidden(request: Request, error: Exception) -> JSONResponse:
    _audit(request, str(error))
    return refused(str(error))


def _audit(request: Request, reason: str) -> None:
    """Write down what the user may not."""
    address = request.client.host if request.client else ""
    asked = f"{request.method} {request.url.path}"
    audit.refusal(reason, user=str(request.scope.get("user") or "") or None, address=address, request=asked)


def http_error(request: Request, error: Exception) -> JSONResponse:
    """What the router says: no such path, or not that method."""
    assert isinstance(error, HTTPException)
    names = {404: "Object Not Found", 405: "method_not_allowed"}
    reason = {404: "Not Found", 405: f"{request.method} is not possible here"}.get(error.status_code, error.detail)
    return _json(error.status_code, names.get(error.status_code, "error"), reason, dict(error.headers or {}))


def unauthorized(reason: str) -> JSONResponse:
    return _json(401, "not_authorized", reason, {"WWW-Authenticate": 'Basic realm="JumpMQ Management"'})


def refused(reason: str) -> JSONResponse:
    """The answer to a user who is known, and may not do that."""
    return _json(401, "not_authorized", reason)


def ambiguous_length() -> JSONResponse:
    """The answer to a request whose end is ambiguous (RFC 9112, section 6.3): its connection ends."""
    reason = "Content-Length and Transfer-Encoding exclude each other"
    return _json(400, "bad_request", reason, {"Connection": "close"})


def foreign_page() -> JSONResponse:
    """The answer to a page of another site that asks in its reader's name."""
    return _json(403, "forbidden", "pages of other origins get nothing here")


def _json(status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    shown = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
    return JSONResponse({"error": error, "reason": shown}, status, headers)


class Refused(Exception):
    """Another home refuses what it was asked for a request, in so many words."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def refused_by_home(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response


ANSWERS = {
    Refused: refused_by_home,
    ClientDisconnect: gone_away,
    BadRequest: bad_request,
    UnsupportedMediaType: unsupported_media_type,
    ContentTooLarge: content_too_large,
    Unauthorized: forbidden,
    Gone: gone,
    Blocked: blocked,
    NotCommitted: not_committed,
    ReservationGone: gone,
    OlderDirectory: gone,
    GroupInUse: in_use,
    QueueInUse: locked,
    NoSession: no_session,
    AMQPError: protocol_error,
    HTTPException: http_error,
}
