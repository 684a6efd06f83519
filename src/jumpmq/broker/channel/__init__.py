"""A channel of a live connection: its state, and a function for each method."""
