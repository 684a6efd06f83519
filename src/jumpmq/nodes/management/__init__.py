"""Management port over several homes: one home answers clients, and queries the other homes.

Each home has a listener on a private Unix socket, for the other homes only (:mod:`~jumpmq.nodes.management.listener`).
The answering home requests statistics (:mod:`~jumpmq.nodes.management.asking`), which
:class:`~jumpmq.nodes.management.merged.MergedFigures` merges, and forwards requests about a single queue
(:mod:`~jumpmq.nodes.management.passing`). A broker with one home does not load this package.
"""
