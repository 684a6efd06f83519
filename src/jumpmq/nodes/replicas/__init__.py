"""Replicas of a home's log: the I/O of :mod:`jumpmq.replication`.

A :class:`~jumpmq.nodes.replicas.copied_home.CopiedHome` owns a replica, performs its actions, and passes the results
from disk, links and etcd back to the replica. This package makes no decisions: rules R1 to R11 are in
:mod:`jumpmq.replication`.

=====================  ==============================================================================================
``copied_home``        a replica, its clock, and the performers of its actions
``copy_directory``     a copy as files: segments of the log, and ``replica`` with promise and mark
``disk_thread``        the thread that writes and syncs a directory, with one sync for all waiting tasks
``indexing``           the index of a copy, updated by a child process, and the removal of consumed segments
``commit_checks``      assembly of shipped octets into whole, verified commits
``shipping``           the reading of a leader's log, and the sending to followers
``file_exchange``      transfer of files from a leader to members whose logs end before its own begins
``offered_files``      the leader's files for this transfer
``coming_files``       the member's received files, until they replace the old copy
``sessions``           frames of replicas in records of links, after a HELLO from each side
``configuration_key``  reads and swaps of the configuration in etcd
=====================  ==============================================================================================
"""
