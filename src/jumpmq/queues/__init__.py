"""Queues: ready and unacknowledged messages, limits, expiry, delivery in turn. No I/O: the store is handed in."""

from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.consumer import Consumer

__all__ = ["ClassicQueue", "Consumer"]
