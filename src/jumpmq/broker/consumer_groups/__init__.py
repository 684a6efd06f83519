"""Consumer groups: members share the queues (or slots) of a source, each unit at one member at a time."""
