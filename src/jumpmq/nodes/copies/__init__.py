"""Copies of homes in a cluster: replicas at each process, leadership, and the wishes of operators.

A process of a cluster begins with :func:`~jumpmq.nodes.copies.serving.serving_node`. Where its home has copies, it
serves the home once its replica (:mod:`jumpmq.nodes.replicas`) leads, and may serve homes of other nodes beside it, as
*guests* without clients.

===================  ==============================================================================================
``serving``          a process's own home, served with or without copies; guests
``node_copies``      the copies at a process: which there are, which lead, steps towards what is wanted
``operating``        copies as operators see and change them
``announced``        addresses of processes for copies, and troubles of copies, as etcd has them
``returns``          when leadership may return to the node that a home belongs to
``observed``         how long followers are behind; changes of set and leader
``member_file``      the membership of a home with copies, known before its store is opened
``kept_copy``        a copy at this node, opened again after whatever ended it
``leading_store``    the store of a home whose replica leads
``lost_disk``        a new data directory in place of a lost one, filled from copies at other nodes
``restoring``        a follower's directory in place of a leader's lost disk, by hand
===================  ==============================================================================================
"""
