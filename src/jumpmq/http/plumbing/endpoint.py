"""Endpoint of the management API: a method on a path, required tags of the user, and shape of the body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.schema.shapes import Shape

Respond = Callable[[Request], Awaitable[Response]]
"""A function that answers a request; the docstring documents the endpoint."""

ENDLESS = "endless answer"
"""Name of the task of an answer without an end: cancelled at once when the server stops."""


class Endpoint(Route):
    """A route that checks the user's tags first.

    Attributes:
        verb: the HTTP method.
        access: required access level of the user.
        at_home: True if the home of the queue in the path must answer, for requests about the queue's contents.
        at_node: True if the node in the path must answer.
        shape: shape of the JSON object in the body; None for an endpoint without a body.
        summary: first paragraph of the function's docstring, without the path at its beginning.
    """

    def __init__(
        self,
        verb: str,
        path: str,
        respond: Respond,
        *,
        access: Access = Access.MANAGEMENT,
        shape: Shape | None = None,
        at_home: bool = False,
        at_node: bool = False,
    ) -> None:
        async def checked(request: Request) -> Response:
            access.require(requested.user(request))
            forwarded = await requested.forwarder(request).forward(request, at_home=at_home, at_node=at_node)
            return await respond(request) if forwarded is None else forwarded

        super().__init__(path, checked, methods=[verb], name=respond.__name__)
        self.verb = verb
        self.access = access
        self.shape = shape
        self.at_home, self.at_node = at_home, at_node
        paragraph = " ".join((respond.__doc__ or "").split("\n\n")[0].split())
        self.summary = paragraph.partition("``: ")[2] or paragraph
