"""Moves of queues between homes.

A change of definitions (``MoveQueue``) gives the queue a new home; the queue's messages follow. ``move_tasks`` records
what each move waits for. ``jumpmqctl list_queues`` shows the reason, and so does the warning ``move-stands-still`` once
the move has made no progress for 30 seconds.

====================================  ============================================================================
``moving``                            moves of queues: messages in order and each once, consumers, other homes
``stream_moves``                      moves of streams whose files are copied before the change is proposed
``stream_offers``, ``stream_copies``  such a stream's files: sent by the old home, received by the new home
``copy_records``                      payloads of the records for copying
``move_tasks``                        a task per move of the home, with the reason for its current wait
``relocating``                        choice of the queues to move: all of a home being removed, some of a fuller home
``returning``                         return of a node's shards after the node joined again
``ring_changes``                      changes of a ring at all homes at once, with ordering barriers
====================================  ============================================================================
"""
