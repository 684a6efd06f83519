"""Whole batches of messages, read and published without a channel."""
