"""Requests that other workers or nodes answer, or answer too: the management API's side of it.

A broker of one process answers everything itself (:data:`LOCAL`). With workers or nodes the process that has the
client's connection forwards a request about the contents of one queue to the queue's home, asks each home for its own
queues where a request names several, and has an operation on the node done at every home. Each home judges the user's
permissions where it does the work.
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
"""By home, the queues that the home is asked about, and the JSON of the request's body."""


class OpenAnswer(Protocol):
    """The answer of another home, under way."""

    def close(self) -> None:
        """Break the connection, unless the answer is whole."""


class Forwarder(Protocol):
    """Forwards requests to other homes."""

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the other homes."""

    async def forward(self, request: Request, *, at_home: bool, at_node: bool) -> Response | None:
        """Answer a request by the home or the node that its path names; None where this process is to answer.

        Args:
            at_home: whether the request is about the contents of the queue in its path.
            at_node: whether the request is about the node in its path.

        Raises:
            NotFound: the queue's home is down.
        """

    async def ask(self, request: Request, home: int, target: bytes, body: object) -> OpenAnswer:
        """Ask one home the request with another body.

        Args:
            target: path of the request.
            body: becomes JSON; None for none.

        Raises:
            HomeUnreachable: the home does not answer.
        """

    async def asked(self, request: Request, host: VirtualHost | None, bodies: Bodies) -> list[Any]:
        """Ask several homes the request at once, each with its own body; returns the JSON of their answers.

        Raises:
            Refused: one of them refuses.
            NotFound: one of them is down.
        """

    async def asked_of_running(self, request: Request, bodies: Bodies) -> dict[int, Any]:
        """As :meth:`asked`, of the homes that answer, by number.

        Raises:
            Refused: one of them refuses.
        """

    async def everywhere(self, request: Request, body: Any = None) -> dict[int, Any]:
        """As :meth:`asked_of_running`, of all other homes with the same body."""

    async def streamed(
        self,
        request: Request,
        host: VirtualHost,
        bodies: Bodies,
        here: StreamingResponse,
        columns: tuple[str, ...],
    ) -> Response:
        """One Arrow stream: the batches of this home, then those of the homes in ``bodies``.

        Raises:
            Refused, NotFound: as :meth:`asked`.
        """

    async def act(self, name: str, *arguments: Any) -> list[Any]:
        """Have all other homes that answer carry out an operation; returns their results."""

    def joined_session(self, session: str, told: Mapping[int, Any]) -> str:
        """The session of a group of readers, of this home's and the other homes' answers to its opening."""

    def own_session(self, session: str) -> str:
        """This home's part of a session."""


class _Local:
    """The forwarder of a broker of one process."""

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
"""Forwards nothing: the process answers every request."""
