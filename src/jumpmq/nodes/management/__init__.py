"""Management port over several homes: a single home answers, and asks the peers.

Each home has a listener of its own on a Unix socket, for the others alone (:mod:`~jumpmq.nodes.management.listener`).
The one that answers asks them for figures (:mod:`~jumpmq.nodes.management.asking`), which
:class:`~jumpmq.nodes.management.merged.MergedFigures` puts together, and passes them requests for what is in one queue
(:mod:`~jumpmq.nodes.management.passing`). Where there is one home nothing of this is loaded.
"""
