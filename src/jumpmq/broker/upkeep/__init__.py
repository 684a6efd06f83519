"""Long work in slices, and what queues need by the clock."""
