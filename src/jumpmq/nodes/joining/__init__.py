"""The way of a node into its cluster, at each start, before it has definitions in memory."""
