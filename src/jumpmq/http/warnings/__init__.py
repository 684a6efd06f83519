"""Warnings for operators, with advice: for example the reason why one queue of a ring is full.

Only cheap checks are made: of alarms, hash rings with traffic, sharded exchanges, and the fullest queues.

=============  ===========================================================================================
``warning``    the value
``watch``      all warnings, with the time of the first detection
``nodes``      nodes and workers: memory, disk, losses, stall, absence
``absences``   homes that do not answer
``outages``    traffic that ended at once
``copies``     copies of homes
``moves``      moves of queues without progress
``rings``      hash rings: missing headers, hot keys, skew
``shards``     sharded exchanges
``queues``     a queue: full, slow consumers, no consumers, ordering barriers
``served``     consumers and dead-letter targets of many queues, for ``queues``
``trends``     growth of queues
``incidents``  warnings grouped by cause
=============  ===========================================================================================
"""
