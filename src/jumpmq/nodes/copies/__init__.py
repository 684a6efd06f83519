"""Copies of homes in a cluster: replicas at each process, leadership, and the wishes of operators.

A process of a cluster starts with :func:`~jumpmq.nodes.copies.serving.serving_node`. If its home has copies, the
process serves the home once the home's replica here (:mod:`jumpmq.nodes.replicas`) leads. The process may also serve
homes of other nodes as *guests*, without clients.

===================  ==============================================================================================
``serving``          serving of a process's own home, with or without copies, and of guests
``node_copies``      the copies at a process: their leadership, and steps towards the wishes of operators
``operating``        status of the copies for operators, and requests of operators
``announced``        announcements in etcd: addresses of processes for copies, and problems of copies
``wishes``           the wishes for homes in etcd, of operators or from the settings
``succession``       the next leader of a home, and the time for leadership to return to the home's seat
``observed``         lag of followers; changes of set and leader
``kept_copy``        a copy at this node, reopened whenever its replica ends
``leading_store``    the store of a home whose replica leads
``lost_disk``        a new data directory in place of a lost one, filled from copies at other nodes
``restoring``        a follower's copy made the leader by an operator, after the loss of all better copies
===================  ==============================================================================================
"""
