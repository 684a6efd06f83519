"""From an exchange to the queues."""
