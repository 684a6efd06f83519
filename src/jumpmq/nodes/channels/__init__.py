"""Channels whose queues are at other homes."""
