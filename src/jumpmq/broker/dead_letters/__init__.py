"""Dead letters: made, published, and tried again for queues that dead-letter at least once."""
