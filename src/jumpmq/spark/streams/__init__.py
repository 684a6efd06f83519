"""Streams as Spark tables and streaming sources: any number of queries may read ranges of offsets, repeatedly."""
