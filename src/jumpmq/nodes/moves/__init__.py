"""Migration of queues between homes.

A change (``MoveQueue``) says where a queue is from now on; what it holds then follows. A move that stands still says
in :mod:`move_tasks` what it waits for; ``jumpmqctl list_queues`` and the warning ``move-stands-still`` show that.

====================================  ============================================================================
``moving``                            messages of a queue, in order and each once; waits for consumers and homes
``stream_moves``                      a stream, whose files are copied before the change is proposed
``stream_offers``, ``stream_copies``  files of such a stream: read and sent by the old home; received by the new one
``copy_records``                      the payloads of both
``move_tasks``                        tasks of all moves of a home, and what each waits for
``relocating``                        which queues move: all of a home that is left, some of one with more than others
``returning``                         shards that return to a node that joined again
``ring_changes``                      rings that change at all homes at once: ordering barriers and their markers
====================================  ============================================================================
"""
