"""Channels for queues at remote homes."""
