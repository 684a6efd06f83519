"""Findings for operators, with advice: the short answer to "why is one queue full?".

Checks are cheap: alarms, hash rings with traffic, sharded exchanges, and the fullest queues.

=============  ===========================================================================================
``warning``    the value
``watch``      all warnings, with the time of the first detection
``nodes``      nodes and workers: memory, disk, losses, standstill, absence
``absences``   homes that do not answer
``outages``    traffic that ended at once
``copies``     copies of homes
``moves``      moves of queues that stand still
``rings``      hash rings: missing headers, hot keys, skew
``shards``     sharded exchanges
``queues``     a queue: full, slow consumers, no consumers, ordering barriers
``served``     facts about many queues at once, for ``queues``
``trends``     growth of queues
``incidents``  warnings grouped by cause
=============  ===========================================================================================
"""
