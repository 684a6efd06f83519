"""`jumpmq tls`: a test authority, with certificates for a broker and a client."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LOCAL = ("localhost", "127.0.0.1", "::1")


class Certificates(NamedTuple):
    """PEM files with certificates and keys."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(directory: Path, names: Sequence[str] = (), user: str = "guest") -> Certificates:
    """Create a test authority, a certificate for the broker, and a certificate for a client.

    Args:
        directory: directory for the files, created if missing. Keys are readable by the owner only.
        names: further host names and addresses of the broker; the names of this host are always included.
        user: common name and first alternative name in the client's certificate.

    Raises:
        OSError: the files cannot be written.
    """
    import trustme

    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(*(directory / f"{name}.pem" for name in ("ca", "server", "server-key", "client", "client-key")))
    authority = trustme.CA(organization_name="JumpMQ test authority")
    hosts = dict.fromkeys([*names, *LOCAL, socket.gethostname()])
    server = authority.issue_cert(*hosts, organization_name="JumpMQ")
    client = authority.issue_cert(user, common_name=user, organization_name="JumpMQ")
    authority.cert_pem.write_to_path(made.ca)
    for leaf, certificate, key in ((server, made.server, made.server_key), (client, made.client, made.client_key)):
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.unlink(missing_ok=True)
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(leaf.private_key_pem.bytes())
    return made
