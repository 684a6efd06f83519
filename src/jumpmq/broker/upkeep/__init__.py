"""Long work in slices, and timed maintenance of queues."""
