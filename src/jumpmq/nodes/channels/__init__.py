"""Channels for queues at remote homes: a client's channel stays at the client's home, and asks the queue's home.

====================  ============================================================================================
``remote_channels``   all remote channels of a process; a channel's requests: consume, get, cancel
``remote_channel``    the client's end at one home: requests in order, deliveries, settlements
``remote_consumers``  a consumer and its queue, as the client's channel sees them
``served_channels``   the end at the queue's home: a channel that serves such requests
``group_members``     a member of a consumer group with a part at each home
``shard_choice``      the shard that a consumer of a sharded exchange gets
``usage``             connections and channels of all homes, for limits
====================  ============================================================================================
"""
