"""Configuration of a broker."""

import socket
from dataclasses import dataclass
from pathlib import Path

from jumpmq.amqp.protocol import CHANNEL_MAX, FRAME_MAX
from jumpmq.broker.security.certificates import ClientCertificates, LoginName, ServerTLS
from jumpmq.broker.timing import BROKER_TIMING, BrokerTiming

OTHER_HOMES = "homes"
"""Subdirectory of the data directory for all homes except the first."""


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
        host: address to listen on, or a name, for each of its addresses.
        port: port for AMQP; 0 picks a free port, None disables it. The same holds for the other ports.
        http_port: port for the management API.
        tls_port, https_port: ports for both with TLS; used if there is a certificate.
        tls_cert, tls_key, tls_ca, tls_client: as in :class:`~jumpmq.broker.security.certificates.ServerTLS`.
        tls_processes: number of processes that do TLS for AMQP clients; 0 for the broker's own process.
        tls_login_from: part of a client's certificate that names the user, as RabbitMQ's ``ssl_cert_login_from``.
        proxy_protocol_from: balancers whose PROXY headers are accepted on the ports for AMQP, in the form of
            :class:`~jumpmq.broker.connection.proxied.Proxies`; None for none.
        data_dir: directory of durable data; None keeps everything in memory.
        workers: number of processes, each with a part of the queues; see :mod:`jumpmq.nodes.processes.workers`.
        worker: number of this process in its node, from 1.
        home: number of the home served by this process, from 1; assigned by the cluster when a node joins.
        homes: number of the node's homes, each with its own process and data directory.
        begins: True for the node's first worker while no other worker runs.
        links: directory of the processes' sockets; required for several processes outside a cluster.
        cluster: name of this node's cluster; None without a cluster.
        etcd: comma-separated URLs of the members of the cluster's etcd.
        etcd_ca, etcd_cert, etcd_key: for members with ``https``, as in
            :class:`~jumpmq.broker.security.certificates.ServerTLS`; None for the system's authorities.
        cluster_secret_file: file with secrets, one per line, that seal the cluster's data in etcd; None for plain data.
        recover_cluster: True to restore a cluster that etcd has lost, with this node's definitions.
        recover_without: comma-separated names of nodes that are lost with their disks. Their copies of homes that etcd
            has lost are not awaited.
        rejoin_cluster: True to replace the definitions of a node that has followed another recovery of the cluster.
        accept_older_data: True to accept a data directory older than the one recorded in etcd.
        cluster_host: address of this node for other nodes of the cluster.
        cluster_port: port of the first worker for other nodes; each further worker has the next port. 0 picks free
            ports.
        copies: number of nodes with a copy of this home's log, once the cluster has enough nodes. An operator's request
            overrides the setting.
        rack: rack of this node; copies go to nodes of different racks first. None for no rack.
        replace_after: seconds of a node's absence after which another node gets its copies; 0 for never.
        return_after: seconds without a change of a home's set, led here, before leadership returns to the home's node.
        failover_after: seconds without a sign of a home's leader after which this node's copy may lead the home.
        queue_leader_locator: placement of new queues without a locator of their own: ``client-local`` or ``balanced``,
            as RabbitMQ's setting.
        node: name of this node; None for the name in the data directory, or :func:`default_node` for a new directory.
        load_definitions: definitions file, or directory of files, imported before the broker listens; see
            :mod:`jumpmq.serving.load_definitions`.
        default_user, default_pass: administrator of a new data directory, as RabbitMQ's settings of these names. Only
            the user ``guest`` is restricted to loopback addresses.
        oauth_resource, oauth_keys: accepted OAuth 2 tokens, as in :class:`~jumpmq.broker.security.tokens.Tokens`.
        http_names: comma-separated further host names by which browsers on this machine may request the page.
        log_level: log level, a name of :mod:`logging`.
        log_format: ``text`` or ``json``, one line per record.
        heartbeat: seconds proposed to clients.
        frame_max: maximum octets of a frame proposed to clients; from 4,096 to 131,072.
        channel_max: maximum number of channels of a connection proposed to clients.
        consumer_max_per_channel: maximum number of consumers of a channel; None for no limit.
        consumer_group_member_max: maximum number of members of a consumer group.
        consumer_group_max_per_user: maximum number of consumer groups with members of one user, at each worker or node.
        consumer_timeout: seconds for the acknowledgement of a delivery before the channel is closed; 0 for no limit.
        publish_rate: maximum number of messages that a connection may publish per second; beyond, it is read more
            slowly. None for no limit.
        memory_limit: octets held for messages above which publishers are blocked, as a size (``2GB``) or a share of the
            machine's or container's memory (``0.4``); None for RabbitMQ's default.
        disk_free_limit: octets of free disk below which publishers are blocked, as a size; None for RabbitMQ's default.
        key_sketches: ``on`` or ``off``: counts of messages, of different keys and of frequent keys at hash exchanges.
        otlp_endpoint: collector for the spans of messages with a ``traceparent``; None makes no spans. See
            :mod:`~jumpmq.broker.telemetry.spans`.
        write_backlog: octets waiting for the disk above which publishers are not read; limited to an eighth of the
            memory limit.
        timing: time limits of clients and intervals of checks; not a setting of the command line.
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
    return_after: int = 30
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
    timing: BrokerTiming = BROKER_TIMING

    @property
    def process(self) -> str:
        """Name of the process among several: by its home or, in a cluster, where homes have separate numbers, by its
        node and worker.
        """
        return "home" if self.cluster is None else "worker"

    @property
    def tls(self) -> ServerTLS | None:
        """TLS settings of the listeners; None without a certificate."""
        if self.tls_cert is None:
            return None
        return ServerTLS(self.tls_cert, self.tls_key, self.tls_ca, self.tls_client)
