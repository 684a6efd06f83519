"""Errors of requests in the format of RabbitMQ's management API: ``{"error": ..., "reason": ...}``."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from jumpmq.amqp.errors import AccessRefused, AMQPError, MetadataTimeout, NotFound, ResourceError
from jumpmq.broker.bulk.reader_group import QueueHasReader, ReaderGroupInUse, UnknownSession
from jumpmq.broker.bulk.starts import OlderDirectory
from jumpmq.broker.copies import CopiesRefused, CopiesUnavailable
from jumpmq.broker.errors import NotCommitted
from jumpmq.broker.telemetry import audit
from jumpmq.queues.reservations import ReservationGone, ReservationRests

MAX_REASON = 1000
"""Maximum length of a reason, in characters: reasons may quote long requests."""


class BadRequest(Exception):
    """The request is invalid: status 400.

    Attributes:
        error: RabbitMQ's name of the error.
    """

    error = "bad_request"


class UnsupportedMediaType(Exception):
    """The body has an unsupported media type: status 415."""


class RequestTooLarge(Exception):
    """The body is too large for one request: status 413."""


class Gone(Exception):
    """The resource existed, but no longer does: status 410."""


class Blocked(Exception):
    """Memory or disk is short, and publishers must wait: status 503."""


class Unauthorized(Exception):
    """The user lacks the right: status 401, as in RabbitMQ."""


_STATUS: dict[type[AMQPError], int] = {
    NotFound: 404,
    AccessRefused: 401,
    ResourceError: 503,
    MetadataTimeout: 503,
}
"""RabbitMQ's statuses for errors of the protocol; all other errors are 400."""


_NAMES = {401: "not_authorized", 404: "not_found", 503: "resource_error"}


def copies_refused(request: Request, error: Exception) -> JSONResponse:
    return _json(400, BadRequest.error, str(error))


def copies_unavailable(request: Request, error: Exception) -> JSONResponse:
    """Answer while copies cannot be read or changed: 503."""
    return _json(503, "unavailable", str(error), {"Retry-After": "1"})


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
    """Answer while the disk accepts no commits: 503."""
    return _json(503, "not_committed", str(error), {"Retry-After": "5"})


def resting(request: Request, error: Exception) -> JSONResponse:
    """Answer a read of messages not yet due for a retry: 503."""
    return _json(503, "resting", str(error), {"Retry-After": "1"})


def in_use(request: Request, error: Exception) -> JSONResponse:
    return _json(409, "in_use", str(error))


def locked(request: Request, error: Exception) -> JSONResponse:
    """Answer a read of a queue that a consumer group, or another group's query, reads: 423."""
    return _json(423, "locked", str(error))


def no_session(request: Request, error: Exception) -> JSONResponse:
    return _json(412, "no_session", str(error))


def protocol_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of the protocol: both ports share the rules that raise these errors."""
    assert isinstance(error, AMQPError)
    if isinstance(error, AccessRefused):
        _audit(request, error.text)
    status = _STATUS.get(type(error), 400)
    return _json(status, _NAMES.get(status, "bad_request"), error.text)


def gone_away(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected in the middle of a request: the answer is never read."""
    return Response(status_code=400)


def forbidden(request: Request, error: Exception) -> JSONResponse:
    _audit(request, str(error))
    return refused(str(error))


def _audit(request: Request, reason: str) -> None:
    """Log a refusal."""
    address = request.client.host if request.client else ""
    asked = f"{request.method} {request.url.path}"
    audit.refusal(reason, user=str(request.scope.get("user") or "") or None, address=address, request=asked)


def http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer the router's errors: unknown path, or wrong method."""
    assert isinstance(error, HTTPException)
    names = {404: "Object Not Found", 405: "method_not_allowed"}
    reason = {404: "Not Found", 405: f"{request.method} is not possible here"}.get(error.status_code, error.detail)
    return _json(error.status_code, names.get(error.status_code, "error"), reason, dict(error.headers or {}))


def unauthorized(reason: str) -> JSONResponse:
    return _json(401, "not_authorized", reason, {"WWW-Authenticate": 'Basic realm="JumpMQ Management"'})


def refused(reason: str) -> JSONResponse:
    """Answer an authenticated user without the right for the request."""
    return _json(401, "not_authorized", reason)


def ambiguous_length() -> JSONResponse:
    """Answer a request with ambiguous length (RFC 9112, section 6.3); the connection is closed."""
    reason = "Content-Length and Transfer-Encoding exclude each other"
    return _json(400, "bad_request", reason, {"Connection": "close"})


def foreign_page() -> JSONResponse:
    """Answer a request from a page of a foreign site."""
    return _json(403, "forbidden", "requests from pages of other origins are refused")


def _json(status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    shown = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
    return JSONResponse({"error": error, "reason": shown}, status, headers)


class RefusedByHome(Exception):
    """Another home refused a forwarded request."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def refused_by_home(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedByHome)
    return error.response


ANSWERS = {
    RefusedByHome: refused_by_home,
    ClientDisconnect: gone_away,
    BadRequest: bad_request,
    UnsupportedMediaType: unsupported_media_type,
    RequestTooLarge: content_too_large,
    Unauthorized: forbidden,
    Gone: gone,
    Blocked: blocked,
    CopiesRefused: copies_refused,
    CopiesUnavailable: copies_unavailable,
    NotCommitted: not_committed,
    ReservationGone: gone,
    ReservationRests: resting,
    OlderDirectory: gone,
    ReaderGroupInUse: in_use,
    QueueHasReader: locked,
    UnknownSession: no_session,
    AMQPError: protocol_error,
    HTTPException: http_error,
}
