"""Clients accepted by a second process and passed to this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jumpmq.broker.connection.listeners import Listener
from jumpmq.broker.errors import BrokerError
from jumpmq.broker.security.certificates import CertificateError


def _ask_nothing(listening: bool) -> None:
    pass


@dataclass
class GivenClients(Listener):
    """A port with its listener in a second process. This process handles TLS.

    Attributes:
        given_addresses: addresses at which the second process listens.
    """

    given_addresses: list[str] = field(default_factory=list)
    _listening: bool = field(default=False, init=False)
    _ask: Callable[[bool], None] = field(default_factory=lambda: _ask_nothing, init=False)

    async def start(self) -> None:
        """Accept clients, and ask the second process to listen.

        Raises:
            BrokerError: TLS cannot be set up.
        """
        try:
            self._read_certificates()
        except CertificateError as error:
            raise BrokerError(str(error)) from None
        self._listening = True
        self._ask(True)

    async def reload(self) -> None:
        """See :meth:`Listener.reload`."""
        self._read_certificates()

    def _read_certificates(self) -> None:
        if self.tls is not None:
            self._versions = self.tls.versions()
            self._context = self.tls.context()

    @property
    def is_suspended(self) -> bool:
        """See :attr:`Listener.is_suspended`."""
        return not self._listening

    @property
    def addresses(self) -> list[str]:
        """Addresses of the second process's listener."""
        return self.given_addresses if self._listening else []

    def ask_through(self, ask: Callable[[bool], None]) -> None:
        """Request later changes by a function, which has the second process start or stop listening, for all processes.
        The second process listens already.
        """
        self._ask = ask

    def ask_no_more(self) -> None:
        """Make no more requests: the whole process is ending."""
        self._ask = _ask_nothing

    def close(self) -> None:
        """Request the second process to stop listening."""
        self._listening = False
        self._ask(False)
