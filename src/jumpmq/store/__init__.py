"""Durable storage: definitions and persistent messages, in a log with group commit."""

from jumpmq.store.batch import Batch
from jumpmq.store.errors import DirectoryInUse, StoreError
from jumpmq.store.lock import DirectoryLock
from jumpmq.store.store import Store

__all__ = ["Batch", "DirectoryInUse", "DirectoryLock", "Store", "StoreError"]
