"""Messages for queues of other homes.

A turn's publishes go over a link as a *batch* per home, and the other home answers once the batch is on its disk
(``enqueue``). If no publisher waits for the answer (dead letters, bulk runs, messages of a queue that moves), the
outbox keeps the messages in the store until the other home has them.

=============  =====================================================================================================
``units``      encoding and decoding of a batch (:class:`~jumpmq.nodes.messages.units.Unit`)
``enqueue``    sending and receiving of batches; receipts; what happens after a link breaks
``outbox``     messages stored here until the other home has stored them
``receiver``   receiver of the outbox's messages, each exactly once
=============  =====================================================================================================
"""
