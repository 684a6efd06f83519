"""Certificates of the broker's TLS listeners, and the identity of a client by certificate."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

log = logging.getLogger(__name__)

LoginName = Literal["distinguished_name", "common_name", "subject_alternative_name"]
ClientCertificates = Literal["none", "optional", "required"]

SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}
"""Abbreviations of name attributes in RFC 4514."""

MOST_SESSIONS = 1000
"""Maximum number of TLS 1.2 sessions kept by a context before its replacement."""

SPECIAL = ',+"\\<>;'


class CertificateError(Exception):
    """TLS cannot be set up; the text is one line with the reason."""


@dataclass(frozen=True)
class ServerTLS:
    """Files of TLS listeners; all paths are of PEM files.

    Attributes:
        certificate: the broker's certificate, with its chain to the authority.
        key: key of the certificate; None if the certificate's file has the key.
        ca: authorities trusted for certificates of clients.
        client: ``none``, or if certificates of clients are ``optional`` or ``required``.
    """

    certificate: Path
    key: Path | None = None
    ca: Path | None = None
    client: ClientCertificates = "none"

    def context(self) -> ssl.SSLContext:
        """Return a context for TLS 1.2 and later, from the current contents of the files.

        Raises:
            CertificateError: a file is unreadable or invalid.
        """
        if self.client != "none" and self.ca is None:
            raise CertificateError("client certificates can be checked only with the certificates of their authority")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            files = f"{self.certificate} and {self.key}" if self.key else str(self.certificate)
            raise CertificateError(f"cannot read certificate and key from {files}: {_reason(error)}") from None
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise CertificateError(f"cannot read certificates from {self.ca}: {_reason(error)}") from None
        modes = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
        context.verify_mode = modes[self.client]
        return context

    def versions(self) -> tuple[tuple[int, int], ...]:
        """Return inode and change time per file, to detect changed files; zeros for a missing file."""
        return tuple(_version(path) for path in (self.certificate, self.key, self.ca) if path is not None)


def keeps_many_sessions(context: ssl.SSLContext) -> bool:
    """Return True if a context must be replaced because of its stored sessions.

    OpenSSL keeps up to 20,480 sessions of clients that use TLS 1.2 without tickets, for five minutes or longer. A
    session takes 1.5 KB, and more with a client certificate. Python has no setting for their number.
    """
    return context.session_stats()["number"] > MOST_SESSIONS


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "not PEM, or the key of another certificate"
    return error.strerror or str(error)


# --- clients' certificates ---

Certificate = dict[str, Any]
"""A certificate as returned by :meth:`ssl.SSLSocket.getpeercert`."""


def login_name(certificate: Certificate, source: LoginName) -> str | None:
    """Return the user name in a client certificate (RabbitMQ, ``ssl_cert_login_from``); None if absent.

    Args:
        source: the whole distinguished name, its common name (several names are joined by commas), or the first
            alternative name of type DNS.
    """
    match source:
        case "distinguished_name":
            return distinguished_name(certificate.get("subject", ())) or None
        case "common_name":
            attributes = [pair for part in certificate.get("subject", ()) for pair in part]
            return ",".join(value for name, value in attributes if name == "commonName") or None
    return next((value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"), None)


def distinguished_name(parts: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a name in the form of RFC 4514, the last part first: ``CN=client,O=Example``."""
    written = ["+".join(f"{SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part) for part in parts]
    return ",".join(reversed(written))


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in SPECIAL else character for character in value)


def expires_at(path: Path) -> float:
    """Return the expiry of the first certificate in a PEM file, in seconds since the epoch."""
    from cryptography import x509  # here, to save memory in a broker without TLS

    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
