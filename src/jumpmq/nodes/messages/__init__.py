"""Messages for queues of remote homes.

A publish goes over a link in the turn's *unit*, and is answered when the other home has it on disk (``enqueue``). What
nobody waits for (dead letters, bulk runs, messages of a queue that moves) is kept by the outbox until then.

===========  =====================================================================================================
``units``    a turn's messages for a home, as octets
``enqueue``  units sent and received; their receipts; what is sent again after a link broke
``outbox``   messages kept here, with their store, until the other home has them
``taking``   the other end of the outbox: each message once
===========  =====================================================================================================
"""
