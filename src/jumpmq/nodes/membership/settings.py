"""Where a cluster's etcd is, as settings say it."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jumpmq.broker.config import Config
from jumpmq.broker.errors import BrokerError
from jumpmq.nodes.membership.etcd import Etcd

PORT = 2379
"""That of etcd's clients, where a URL names none."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where it is.

    Attributes:
        cluster: the cluster's name.
        urls: of etcd's members, with commas between.
        ca, cert, key: files, as in :class:`~jumpmq.broker.config.Config`.
    """

    cluster: str
    urls: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, config: Config) -> "EtcdSettings":
        """Those of a node.

        Raises:
            BrokerError: the cluster has no name.
        """
        if not config.cluster or "/" in config.cluster:
            raise BrokerError(f"a cluster cannot be called '{config.cluster}': a name without slashes is needed")
        files = config.etcd_ca, config.etcd_cert, config.etcd_key
        return cls(config.cluster, config.etcd or "", *(None if file is None else str(file) for file in files))

    def client(self) -> Etcd:
        """A client.

        Raises:
            BrokerError: a URL or a file cannot be used.
        """
        urls, user, password = [], None, None
        for url in filter(None, (one.strip() for one in self.urls.split(","))):
            try:
                parts = urlsplit(url)
                port = parts.port or PORT
            except ValueError:
                raise BrokerError(f"etcd cannot be at '{url}'") from None
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise BrokerError(f"etcd cannot be at '{url}': http://HOST:PORT is meant")
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            urls.append(f"{parts.scheme}://{host}:{port}")
            if parts.username is not None:
                user, password = unquote(parts.username), unquote(parts.password or "")
        if not urls:
            raise BrokerError("a cluster needs the setting etcd: the URLs of its members")
        return Etcd(urls, self._tls(), user, password)

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
