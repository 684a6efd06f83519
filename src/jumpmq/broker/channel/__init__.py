"""A channel of a live connection: state, and a function per method."""
