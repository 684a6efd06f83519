"""Streams as Spark tables and streams: read by ranges of offsets, as often as wanted, by any number of queries."""
