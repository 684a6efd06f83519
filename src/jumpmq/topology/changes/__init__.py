"""Changes of definitions: a class each, in files by subject. :meth:`Topology.propose` is the only way to apply them.

A class has everything about its change: fields, rights, check, effect, records of the effect, and inverse
(:class:`~jumpmq.topology.changes.base.Change` says when each is called).

The fields are plain data, and include everything that the effect depends on: a queue has its home, a user the hash of
the password. A log of changes, replayed in another process in the same order, therefore leads to the same state.
Conditions that only a queue's home knows (the queue is in use, or not empty) are checked before the change is made.

``connection`` is the identity of the connection that asks; None stands for the broker itself or an operator, who may
use all exclusive queues.
"""
