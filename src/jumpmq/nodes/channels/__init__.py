"""Channels for queues at other homes: a client's channel stays at the client's home, and sends requests to the queue's
home.

====================  ============================================================================================
``remote_channels``   the client's side: all remote channels of a process, and the requests (consume, get, cancel)
``remote_channel``    one channel's end of a connection to one home: requests in order, deliveries, settlements
``remote_consumers``  a consumer and its queue, as the client's channel sees them
``served_channels``   the queue's side: a channel that executes the requests
``group_members``     a member of a consumer group, with a part at each home
``shard_choice``      the choice of a shard for a consumer of a sharded exchange
``usage``             counts of open connections and channels at all homes, for limits
====================  ============================================================================================
"""
