"""Replicas of a home's log: the I/O of :mod:`jumpmq.replication`.

A :class:`~jumpmq.nodes.replicas.copied_home.CopiedHome` owns a replica and performs its actions; what the disk, the
links and etcd answer goes back into the replica. Nothing here decides: rules R1 to R11 are in
:mod:`jumpmq.replication`.

===================  ==============================================================================================
``copied_home``      a replica, its clock, and what performs its actions
``copy_directory``   a copy as files: segments of the log, and ``replica`` with promise and mark
``disk_thread``      the thread in which a directory is written and synced, all that waits with one sync
``indexing``         the index of a copy, made by a process of its own; then consumed segments go
``commit_checks``    octets of shipped pieces as whole, verified commits
``shipping``         a leader's log, read from its files and sent to followers
``file_exchange``    files between a leader and members whose logs end before its own begins
``offered_files``    a leader's copy as these files
``coming_files``     these files at the member, until they take the old copy's place
``sessions``         frames of replicas as records of links, with a HELLO of each side first
``claims``           the configuration in etcd, read and compared-and-swapped
===================  ==============================================================================================
"""
