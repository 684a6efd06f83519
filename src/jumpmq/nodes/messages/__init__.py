"""Messages for queues of remote homes."""
