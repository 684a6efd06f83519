"""Migration of queues between homes."""
