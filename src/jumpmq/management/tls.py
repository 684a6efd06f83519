"""TLS of HTTPS clients: mutual authentication of client and broker."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from jumpmq.management.errors import InvalidRequest


@dataclass(frozen=True)
class ClientTLS:
    """Paths of the PEM files that a client's TLS needs.

    Attributes:
        ca: certificates of trusted authorities for the broker's certificate; None for the system's authorities.
        certificate: the client's certificate, with the intermediate certificates; None for no client certificate.
        key: the private key; None if the certificate's file contains the key.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context that verifies the broker's certificate and name.

        Raises:
            InvalidRequest: a file cannot be read, is not PEM, or the key belongs to another certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest(f"cannot read certificates from {self.ca}: {_reason(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                files = self.certificate if self.key is None else f"{self.certificate} and {self.key}"
                raise InvalidRequest(f"cannot read certificate and key from {files}: {_reason(error)}") from None
        return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "not PEM, or the key of another certificate"
    return error.strerror or str(error)
