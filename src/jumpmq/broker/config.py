"""Configuration of a broker."""

import socket
from dataclasses import dataclass
from pathlib import Path

from jumpmq.amqp.protocol import CHANNEL_MAX, FRAME_MAX
from jumpmq.broker.security.certificates import ClientCertificates, LoginName, ServerTLS

OTHER_HOMES = "homes"
"""Directory of the data directory with those of the homes but the first."""


def homes_in(data_dir: Path | None) -> int:
    """Return the number of homes in a data directory, removed homes included."""
    others = [] if data_dir is None else [path.name for path in (data_dir / OTHER_HOMES).glob("*")]
    return max([1, *(int(name) for name in others if name.isdigit())])


def default_node() -> str:
    """Return ``jumpmq@HOST``, with the short name of the local host."""
    return f"jumpmq@{socket.gethostname().split('.')[0]}"


@dataclass(slots=True)
class Config:
    """Settings of a broker.

    Attributes:
        host: address to listen on, or a name: then each of its addresses.
        port: of AMQP; 0 picks a free one, None listens nowhere. The same of the other ports.
        http_port: of the management API.
        tls_port, https_port: of both with TLS; they are listened on where there is a certificate.
        tls_cert, tls_key, tls_ca, tls_client: as in :class:`~jumpmq.broker.security.certificates.ServerTLS`.
        tls_processes: processes beside the broker's own that do TLS for clients of AMQP; 0 has it do so itself.
        tls_login_from: what of a client's certificate names the user, as RabbitMQ's ``ssl_cert_login_from``.
        proxy_protocol_from: balancers whose PROXY headers are believed on the ports of AMQP, as
            :class:`~jumpmq.broker.connection.proxied.Proxies` takes them; None believes nobody.
        data_dir: where durable things are kept; None keeps everything in memory.
        workers: processes that serve it, each with a part of the queues; see :mod:`jumpmq.nodes.processes.workers`.
        worker: number of this process in its node, from 1.
        home: number of the home that this process serves, from 1 on; in a cluster it is given when that is joined.
        homes: how many the node has, each with a process and a data directory of its own.
        begins: whether this is the node's first worker, and no other of them runs yet.
        links: directory of the processes' sockets; needed for several processes outside a cluster.
        cluster: name of this node's cluster; None without a cluster.
        etcd: the cluster's metadata store, as URLs of its members with commas between.
        etcd_ca, etcd_cert, etcd_key: for members with ``https``, as in
            :class:`~jumpmq.broker.security.certificates.ServerTLS`; None is the authorities that the system knows.
        cluster_secret_file: secrets, one a line, that seal what the cluster keeps in etcd; None keeps it readable.
        recover_cluster: where etcd has lost the cluster, have this node's definitions be those of the cluster.
        recover_without: names of nodes that are lost with their disks, with commas between: where etcd has lost homes,
            the copies of these nodes are not waited for.
        rejoin_cluster: whether a node that has followed another recovery takes the cluster's definitions.
        accept_older_data: whether a data directory is taken that is older than what etcd has seen of it.
        cluster_host: address of this node for other nodes of the cluster.
        cluster_port: the same, of the first worker, the next one has the next port; 0 picks free ones.
        copies: nodes of the cluster that keep this home's messages, once there are so many, unless an operator has said
            how many.
        rack: where this node is: copies go to nodes of different racks first; None for nowhere in particular.
        replace_after: seconds without a node until another one gets its copies; 0 for never.
        failover_after: seconds without a sign of the leader of a home after which this node's copy may lead it.
        queue_leader_locator: at which home a queue is that does not say so itself: ``client-local`` or ``balanced``, as
            RabbitMQ's setting.
        node: name of this node; None is the one that the data directory keeps, and in a new one :func:`default_node`.
        load_definitions: definitions file, or directory of such, that is imported before the broker listens; see
            :mod:`jumpmq.serving.load_definitions`.
        default_user, default_pass: the administrator that a new data directory begins with, as RabbitMQ's settings of
            these names. Only guest is let in from loopback addresses alone.
        oauth_resource, oauth_keys: whose tokens are logins, as in :class:`~jumpmq.broker.security.tokens.Tokens`.
        http_names: names, with commas, by which browsers on this machine may ask for the page beside its own names.
        log_level: as in :mod:`logging`.
        log_format: ``text`` or ``json``, a line a record.
        heartbeat: seconds, proposed to clients.
        frame_max: octets of a frame at most, proposed to clients; from 4,096 to 131,072.
        channel_max: channels of a connection at most, proposed to clients.
        consumer_max_per_channel: consumers of a channel at most; None is any number.
        consumer_group_member_max: members of a consumer group at most.
        consumer_group_max_per_user: consumer groups in which a user may have members, at each worker or node.
        consumer_timeout: seconds that a delivery may wait for its acknowledgement before its channel is closed; 0 is
            for ever.
        publish_rate: messages a second that a connection may publish; it is read no faster. None is any number.
        memory_limit: octets held for messages at which publishers are blocked, as a size (``2GB``) or a share of the
            machine's or the container's memory (``0.4``); None is RabbitMQ's default.
        disk_free_limit: octets of free disk below which publishers are blocked, as a size; None is RabbitMQ's default.
        key_sketches: ``on`` or ``off``: whether hash exchanges count their messages, different and frequent keys.
        otlp_endpoint: where spans of messages that carry a ``traceparent`` go; None makes none. See
            :mod:`~jumpmq.broker.telemetry.spans`.
        write_backlog: octets waiting for the disk beyond which publishers are no longer read; an eighth of the memory
            limit at most.
    """

    host: str = "localhost"
    port: int | None = 5672
    http_port: int | None = 15672
    tls_port: int | None = 5671
    https_port: int | None = 15671
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    tls_client: ClientCertificates = "none"
    tls_processes: int = 0
    tls_login_from: LoginName = "distinguished_name"
    proxy_protocol_from: str | None = None
    data_dir: Path | None = None
    workers: int = 1
    worker: int = 1
    home: int = 1
    homes: int = 1
    begins: bool = False
    links: Path | None = None
    cluster: str | None = None
    etcd: str | None = None
    etcd_ca: Path | None = None
    etcd_cert: Path | None = None
    etcd_key: Path | None = None
    cluster_secret_file: Path | None = None
    cluster_host: str = "127.0.0.1"
    cluster_port: int = 0
    copies: int = 1
    rack: str | None = None
    replace_after: int = 600
    failover_after: int = 3
    recover_cluster: bool = False
    recover_without: str | None = None
    rejoin_cluster: bool = False
    accept_older_data: bool = False
    queue_leader_locator: str = "client-local"
    node: str | None = None
    load_definitions: Path | None = None
    default_user: str = "guest"
    default_pass: str = "guest"
    oauth_resource: str | None = None
    oauth_keys: str | None = None
    http_names: str | None = None
    log_level: str = "info"
    log_format: str = "text"
    heartbeat: int = 60
    frame_max: int = FRAME_MAX
    channel_max: int = CHANNEL_MAX
    consumer_max_per_channel: int | None = None
    consumer_group_member_max: int = 1024
    consumer_group_max_per_user: int = 1024
    consumer_timeout: int = 1800
    publish_rate: int | None = None
    memory_limit: str | None = None
    disk_free_limit: str | None = None
    key_sketches: str = "on"
    otlp_endpoint: str | None = None
    write_backlog: int = 192 << 20

    @property
    def process(self) -> str:
        """Name of the process among several: by home or, in a cluster with separate home numbers, as a worker of the
        node."""
        return "home" if self.cluster is None else "worker"

    @property
    def tls(self) -> ServerTLS | None:
        """TLS settings of the listeners; None without a certificate."""
        if self.tls_cert is None:
            return None
        return ServerTLS(self.tls_cert, self.tls_key, self.tls_ca, self.tls_client)
