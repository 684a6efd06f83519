"""Queues that move from home to home."""
