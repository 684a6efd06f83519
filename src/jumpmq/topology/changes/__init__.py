"""Changes of definitions: a class each, in files by subject. :meth:`Topology.propose` is the only way to apply them.

A class has all that belongs to its change: fields, rights, check, effect, records of the effect, and inverse
(:class:`~jumpmq.topology.changes.base.Change` says when each is called).

The values hold plain data only, and all that their effect depends on, so that a log of them can be replayed in another
process, in the same order, to the same state: a queue brings its home, a user the hash of the password. What only a
queue's home can judge (whether it is in use, or empty) is judged before there is a change.

``connection`` is the identity of the connection that asks; None is the broker itself or an operator, who may touch
exclusive queues.
"""
