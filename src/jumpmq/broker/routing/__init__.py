"""Routing of messages from an exchange to queues."""
