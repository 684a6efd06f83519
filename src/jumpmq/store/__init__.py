"""What must survive: definitions and persistent messages, in one SQLite file with group commit."""

from jumpmq.store.batch import Batch
from jumpmq.store.errors import StoreError
from jumpmq.store.store import Store

__all__ = ["Batch", "Store", "StoreError"]
