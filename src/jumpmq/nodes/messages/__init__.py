"""Messages for queues of other homes."""
