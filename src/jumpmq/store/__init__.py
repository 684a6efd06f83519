"""What must survive: definitions and persistent messages, in a log with group commit."""

from jumpmq.store.batch import Batch
from jumpmq.store.errors import StoreError
from jumpmq.store.store import Store

__all__ = ["Batch", "Store", "StoreError"]
