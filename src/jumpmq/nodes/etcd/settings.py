"""Settings of a cluster's etcd."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.etcd.client import Etcd
from jumpmq.nodes.etcd.sealing import Seal, read_secrets

PORT = 2379
"""Default client port of etcd, for URLs without a port."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Addresses and credentials of a cluster's etcd.

    Attributes:
        cluster: name of the cluster.
        urls: comma-separated URLs of etcd's members.
        ca, cert, key: files, as in :class:`~jumpmq.broker.config.Config`.
        secrets: secrets for sealing values (:mod:`~jumpmq.nodes.etcd.sealing`); none for plain values.
        identity: identity of the cluster, once known.
    """

    cluster: str
    urls: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    identity: str = ""

    @classmethod
    def of(cls, config: Config, identity: str = "") -> "EtcdSettings":
        """Return the etcd settings of a node.

        Args:
            identity: as of the class.

        Raises:
            BrokerError: the cluster has no name, or its secret cannot be read.
        """
        if not config.cluster or "/" in config.cluster:
            raise BrokerError(f"a cluster cannot be called '{config.cluster}': a name without slashes is needed")
        files = config.etcd_ca, config.etcd_cert, config.etcd_key
        ca, cert, key = (None if file is None else str(file) for file in files)
        secrets = () if config.cluster_secret_file is None else read_secrets(config.cluster_secret_file)
        return cls(config.cluster, config.etcd or "", ca, cert, key, secrets, identity)

    def client(self) -> Etcd:
        """Return a client.

        Raises:
            BrokerError: a URL is invalid, or a file cannot be used.
        """
        urls: list[str] = []
        user = password = None
        for url in filter(None, (one.strip() for one in self.urls.split(","))):
            try:
                parts = urlsplit(url)
                port = parts.port or PORT
            except ValueError:
                raise BrokerError(_refused(len(urls) + 1)) from None
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.path.strip("/")
                or (parts.query or parts.fragment)
            ):
                raise BrokerError(_refused(len(urls) + 1))
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            urls.append(f"{parts.scheme}://{host}:{port}")
            if parts.username is not None:
                user, password = unquote(parts.username), unquote(parts.password or "")
        if not urls:
            raise BrokerError("a cluster needs the setting etcd: the URLs of its members")
        seal = None
        if self.secrets:
            seal = Seal(self.secrets)
            seal.identity = self.identity
        return Etcd(urls, self._tls(), user, password, seal)

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca is None and self.cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(Path(self.cert), None if self.key is None else Path(self.key))
        except (OSError, ssl.SSLError) as error:
            raise BrokerError(f"the certificates for etcd cannot be used: {error.strerror or error}") from None
        return context


def _refused(number: int) -> str:
    """Return the reason for rejecting a URL. The URL is not shown: a password may be anywhere in the text."""
    return (
        f"etcd's URL number {number} is none: http://HOST:PORT or http://USER:PASSWORD@HOST:PORT is meant, with the "
        "characters / ? # @ : % of user and password as %2F %3F %23 %40 %3A %25, and commas as %2C"
    )
