"""Log of definitions shared by several homes: every change is an entry, which all homes apply in one order.

``shared_log`` is the part of a process, common to all sequencers. A *sequencer* gives the entries their order:

=============================  ===================================================================================
``shared_log``                 one process's side: proposals, entries, waits, digests
``first``, ``follower``        sequencer of a node's workers: the first worker orders, the others follow
``log_link``, ``messages``     messages between ``first`` and ``follower`` over links, and their payloads
``cluster_log``                sequencer of a cluster: homes append entries to etcd
``snapshots``, ``compacting``  all definitions as one value in etcd, and the removal of earlier entries
=============================  ===================================================================================
"""
