"""Copies of a home's log on the disks of other nodes: the I/O of :mod:`jumpmq.replication`.

A :class:`~jumpmq.nodes.copies.copied_home.CopiedHome` owns a replica and performs its actions; what the disk, the links
and etcd answer goes back into the replica. Nothing here decides: rules R1 to R11 are in :mod:`jumpmq.replication`.

A process of a cluster begins with :func:`~jumpmq.nodes.copies.serving.serving_node`. Where its home has copies, it
serves the home once its replica leads, and may serve homes of other nodes beside it, as *guests* without clients.

===================  ==============================================================================================
``serving``          a process's own home, served with or without copies; guests
``node_copies``      the copies at a process: which there are, which lead, steps towards what is wanted
``operating``        copies as operators see and change them
``wanted``           what an operator wants of a home, and the next step on the way there
``member_file``      the membership of a home with copies, known before its store is opened
``copied_home``      a replica, its clock, and what performs its actions
``copy_directory``   a copy as files: segments of the log, and ``replica`` with promise and mark
``disk_thread``      the thread in which a directory is written and synced, all that waits with one sync
``indexing``         the index of a copy, made by a process of its own; then consumed segments go
``commit_checks``    octets of shipped pieces as whole, verified commits
``shipping``         a leader's log, read from its files and sent to followers
``kept_copy``        a copy of another node's home, opened again after whatever ended it
``offered_files``    a leader's copy as files, for members whose logs end before its own begins
``coming_files``     these files at the member, until they take the old copy's place
``restoring``        a follower's directory in place of a leader's lost disk, by hand
``lost_disk``        a new data directory in place of a lost one, filled from copies at other nodes
``leading_store``    the store of a home whose replica leads
``sessions``         frames of replicas as records of links, with a HELLO of each side first
``claims``           the configuration in etcd, read and compared-and-swapped
===================  ==============================================================================================
"""
