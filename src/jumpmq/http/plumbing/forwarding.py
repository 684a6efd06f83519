"""Forwarding of requests to remote workers or nodes: the management API's side.

A broker of one process answers all requests itself (:data:`LOCAL`). With workers or nodes, the process with the
client's connection forwards requests: a request about the contents of one queue to the queue's home, a request about
several queues to each of their homes, and an operation on the node to every home. Each home checks the user's
permissions for its own part of the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jumpmq.broker.errors import HomeUnreachable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse

    from jumpmq.topology import VirtualHost

Bodies = Mapping[int, tuple[list[str], Any]]
"""By home: the home's queues in the request, and the JSON of the request's body."""


class OpenAnswer(Protocol):
    """An incomplete answer of another home."""

    def close(self) -> None:
        """Break the connection, unless the answer is complete."""


class Forwarder(Protocol):
    """Forwards requests to other homes."""

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the other homes."""

    async def forward(self, request: Request, *, at_home: bool, at_node: bool) -> Response | None:
        """Return the answer of the home or node named in the path; None if this process must answer.

        Args:
            at_home: True for a request about the contents of the queue in its path.
            at_node: True for a request about the node in its path.

        Raises:
            NotFound: the queue's home is down.
        """

    async def ask(self, request: Request, home: int, target: bytes, body: object) -> OpenAnswer:
        """Send the request to one home, with a different body.

        Args:
            target: path of the request.
            body: value for the JSON body; None for no body.

        Raises:
            HomeUnreachable: the home does not answer.
        """

    async def asked(self, request: Request, host: VirtualHost | None, bodies: Bodies) -> list[Any]:
        """Send the request to several homes at once, with a body per home; return the JSON of the answers.

        Raises:
            RefusedByHome: a home refuses.
            NotFound: a home is down.
        """

    async def asked_of_running(self, request: Request, bodies: Bodies) -> dict[int, Any]:
        """Like :meth:`asked`, for reachable homes only; return the answers by home.

        Raises:
            RefusedByHome: a home refuses.
        """

    async def everywhere(self, request: Request, body: Any = None) -> dict[int, Any]:
        """Like :meth:`asked_of_running`, for all other homes, with the same body for each."""

    async def streamed(
        self,
        request: Request,
        host: VirtualHost,
        bodies: Bodies,
        here: StreamingResponse,
        columns: tuple[str, ...],
    ) -> Response:
        """Return a single Arrow stream: the batches of this home, then the batches of the homes in ``bodies``.

        Raises:
            RefusedByHome, NotFound: as for :meth:`asked`.
        """

    async def act(self, name: str, *arguments: Any) -> list[Any]:
        """Run an operation at all reachable other homes; return the results."""

    def joined_session(self, session: str, told: Mapping[int, Any]) -> str:
        """Return a reader group's session, from the answers of this home and of other homes."""

    def own_session(self, session: str) -> str:
        """Return the local home's part of a session."""


class _Local:
    """The forwarder of a single-process broker."""

    others: tuple[int, ...] = ()

    async def forward(self, request: Request, *, at_home: bool, at_node: bool) -> Response | None:
        return None

    async def ask(self, request: Request, home: int, target: bytes, body: object) -> OpenAnswer:
        raise HomeUnreachable(home, "this broker is one process")

    async def asked(self, request: Request, host: VirtualHost | None, bodies: Bodies) -> list[Any]:
        return []

    async def asked_of_running(self, request: Request, bodies: Bodies) -> dict[int, Any]:
        return {}

    async def everywhere(self, request: Request, body: Any = None) -> dict[int, Any]:
        return {}

    async def streamed(
        self,
        request: Request,
        host: VirtualHost,
        bodies: Bodies,
        here: StreamingResponse,
        columns: tuple[str, ...],
    ) -> Response:
        return here

    async def act(self, name: str, *arguments: Any) -> list[Any]:
        return []

    def joined_session(self, session: str, told: Mapping[int, Any]) -> str:
        return session

    def own_session(self, session: str) -> str:
        return session


LOCAL: Forwarder = _Local()
"""The forwarder without other homes: the process answers every request."""
