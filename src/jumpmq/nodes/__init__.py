"""Several processes as one broker: workers of a node, and nodes of a cluster.

Nothing below imports this package. The broker knows :class:`~jumpmq.broker.peers.Peers`, which
:class:`~jumpmq.nodes.other_homes.OtherHomes` implements with the parts here; the management API knows
:class:`~jumpmq.http.plumbing.forwarding.Forwarder`, the topology :class:`~jumpmq.topology.log.CommonLog`.

A *home* is a number, a data directory and a process; a node has one home a worker. The id of a queue is
``home << 40 | counter``, so that homes number their queues without asking each other.

=============  =====================================================================================================
entering       a process becomes one of several (:func:`~jumpmq.nodes.entering.enter`)
entry          the steps of a start among remote homes: log, restoring, links, joining; and the stop
transport/     links: one connection between each two homes, on which records go both ways in order; calls for HTTP;
               client sockets passed from process to process
log/           the log of definitions that all homes replay (``shared_log``), with its sequencers: the first worker, and
               etcd; snapshots of it, and their compaction
joining/       the way of a node into its cluster, before it has definitions
membership/    a node in its cluster: lease, live homes, entries in etcd, answers that wait, dead homes
messages/      messages of a turn (``enqueue``), and those kept until the other home has them (``outbox``, ``taking``)
channels/      a client's channel at the home of its queue, consumers and members of groups there, usage of limits
moves/         queues and streams that move to another home, homes that are left, rings that change
management/    requests forwarded to a home or asked of all; figures of all homes together
copies/        copies of homes: who serves a home, what operators want, guests of lost nodes
replicas/      a replica of a home's log: its disk, its sessions with others, its configuration in etcd
rebuilding     homes with copies that etcd has lost: made again from the copies of all members
processes/     the supervisor of workers, and a worker
=============  =====================================================================================================

Rules that hold across homes:

- Definitions are the same everywhere: each home replays the whole log, numbers of queues, hash rings and shards
  included (``tests/topology/test_replaying.py``). Contents, consumers and messages are at the queue's home alone.
- Permissions and existence are judged by the home that has the client's connection, by definitions. Contents (is the
  queue empty, in use, exclusive) are judged at the queue's home, which then proposes a change by the queue's id.
- A publish is complete when it is on the disks of all homes that it went to: a link is one more source of its receipt.
- An exclusive queue belongs to a connection's identity, boot id and counter, which no other run of a process has.
- A limit on connections, channels or queues of a user counts all homes; memory and disk are each home's own share.
- Listeners of changes run in every process: what is counted or logged once asks whose the change is.
"""
