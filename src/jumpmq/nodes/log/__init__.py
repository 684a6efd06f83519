"""Log of definitions shared by several homes: every change is an entry, which all homes apply in one order.

``shared_log`` is a process's side; who gives the entries their numbers differs:

=============================  ===================================================================================
``shared_log``                 one process's side: proposals, entries, waits, digests
``first``, ``follower``        the order of a node's workers: the first worker gives it, the others follow
``log_link``, ``messages``     both over links, and their payloads
``cluster_log``                the order of a cluster: entries are appended to etcd
``snapshots``, ``compacting``  all definitions as a value in etcd, and the removal of the entries before it
=============================  ===================================================================================
"""
