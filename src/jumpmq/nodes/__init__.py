"""Several processes as one broker: workers of a node, and nodes of a cluster.

The layers below do not import this package. Each knows a protocol with an implementation here: the broker
:class:`~jumpmq.broker.peers.Peers` (:class:`~jumpmq.nodes.other_homes.OtherHomes`), the management API
:class:`~jumpmq.http.plumbing.forwarding.Forwarder`, the topology :class:`~jumpmq.topology.log.CommonLog`.

A *home* is a number, a data directory and a process; a node has one home per worker. The id of a queue is ``home << 40
| counter``, so that each home assigns ids on its own.

==============  =====================================================================================================
serving         the process of a broker with several processes: broker, management, guests
entering        entry of a process into a group of several (:func:`~jumpmq.nodes.entering.enter`)
beginning       the definitions at a start: of the home's store, of the cluster, or of the first worker
entry           the steps of a start among other homes: log, restoring, links, joining; and the stop
parts           the objects that act on records of other homes, made and wired
known_copies    copies of homes, asked by these objects
cluster_member  the node's membership, as these objects know it
other_homes     the broker's protocol ``Peers``, by these objects
timing          intervals and bounds of all packages, as one value
transport/      links: one connection per pair of homes, with records in both directions, in order; calls for HTTP;
                passing of client sockets between processes
etcd/           client of etcd; keys and settings of a cluster; encryption of stored values
log/            the log of definitions that all homes replay (``shared_log``), with its sequencers: the first worker,
                and etcd; its snapshots and compaction
joining/        the entry of a node into its cluster, before it has definitions
membership/     a node in its cluster: lease, live homes, entries in etcd, waiting answers, dead homes
messages/       messages of a turn (``enqueue``), and messages kept until the other home has them (``outbox``,
                ``receiver``)
channels/       channels of a client at the homes of its queues, consumers and members of groups there, usage of limits
moves/          moves of queues and streams to other homes, removal of homes, changes of rings
management/     requests forwarded to one home or sent to all; merged statistics of all homes
copies/         copies of homes: leadership, wishes of operators, guests of lost nodes
replicas/       a replica of a home's log: its disk, its sessions with other replicas, its configuration in etcd
rebuilding      homes with copies, restored from the copies of all members after etcd has lost them
processes/      the supervisor of workers, and a worker
==============  =====================================================================================================

Rules across homes:

- Definitions are the same everywhere: each home replays the whole log, including ids of queues, hash rings and shards
  (``tests/topology/test_replaying.py``). Contents, consumers and messages exist at the queue's home alone.
- The client's home checks permissions and existence, by definitions. The queue's home checks contents (is the queue
  empty, in use, exclusive), and then proposes a change by the queue's id.
- A publish is complete when it is on the disks of all homes of its queues: each link is a source of its receipt.
- An exclusive queue belongs to a connection's identity: boot id and counter, unique among all runs of all processes.
- A limit on connections, channels or queues of a user counts all homes; memory and disk are limited per home.
- Listeners of changes run in every process. A listener that counts or logs a change only once checks which home
  proposed the change.
"""
