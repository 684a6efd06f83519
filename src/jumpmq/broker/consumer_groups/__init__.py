"""Consumer groups: members share the queues (or slots) of a source, every partition at one member at a time."""
